// Package tokenreview (experimental) authenticates callers by Kubernetes tokens, which the API
// server of their cluster reviews (authentication.k8s.io/v1, TokenReview): a server calls [New]
// once per cluster. Each review runs in its own goroutine. It uses plain HTTPS and links no
// Kubernetes package.
package tokenreview

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/token"
)

const (
	defaultKeep = 2 * time.Minute
	maxKeep     = 10 * time.Minute
	defaultMost = 10000

	defaultOfPeer = MaxInFlight / 4
	// askTimeout limits one review.
	askTimeout = 10 * time.Second
)

// MaxInFlight is how many reviews are in progress at most.
const MaxInFlight = 32

// Config configures the authenticator of one API server.
type Config struct {
	// URL of the API server, such as https://10.0.0.1:6443. Required.
	URL string
	// RootFile holds the roots (PEM) that verify the API server, such as
	// /var/run/secrets/kubernetes.io/serviceaccount/ca.crt. It is read for each review.
	// Default: the system roots.
	RootFile string
	// Token is our own credential for the API server, queried for each review and
	// notified of a rejected token; it needs permission to create tokenreviews (the
	// role system:auth-delegator). Required unless Transport is set.
	Token token.Source
	// Transport replaces RootFile and Token, which must be unset: it carries the roots
	// and our credential, as one from a kubeconfig does. Default: none.
	Transport http.RoundTripper
	// Audiences are ours, such as istio-ca: a token must be for at least one. Required.
	Audiences []string
	// Cluster is the cluster set in identities. Default: none.
	Cluster string
	// ServiceAccounts maps accounts to SPIFFE IDs, in the format of
	// [authn.ParseTemplate]. Default: identities have no SPIFFE ID.
	ServiceAccounts string
	// Keep is how long a positive answer is cached, 10 minutes at most and never past
	// the token's expiry. Default: 2 minutes.
	Keep time.Duration
	// Most is how many positive answers are cached. Default: 10000.
	Most int
	// OfPeer is how many reviews for one peer are in progress at most. A gateway or NAT makes many
	// callers one peer. Default: 8; at most [MaxInFlight].
	OfPeer int
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
}

// New checks the settings; it sends nothing before the first token.
func New(cfg Config) (*Reviewer, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("TokenReview at %.256q: %w", cfg.URL, err)
	}
	template, err := authn.ParseTemplate(cfg.ServiceAccounts)
	if err != nil {
		return nil, fmt.Errorf("TokenReview at %q: %w", cfg.URL, err)
	}
	cfg.setDefaults()
	client, err := kubeapi.New(cfg.access())
	if err != nil {
		return nil, fmt.Errorf("TokenReview at %.256q: %w", cfg.URL, err)
	}
	return &Reviewer{
		cfg:      cfg,
		template: template,
		client:   client,
		slots:    &slots{most: MaxInFlight, ofPeer: cfg.OfPeer, by: map[string]int{}},
		flights:  map[tokenKey]*flight{},
		cache:    &cache{most: cfg.Most, byToken: map[tokenKey]entry{}},
	}, nil
}

func (c Config) access() kubeapi.Config {
	return kubeapi.Config{URL: c.URL, RootFile: c.RootFile, Token: c.Token, Transport: c.Transport, MaxReply: maxReply}
}

func (c Config) check() error {
	if err := c.access().Check(); err != nil {
		return err
	}
	switch {
	case c.Transport != nil && (c.Token != nil || c.RootFile != ""):
		return errors.New("a transport has its own roots and credential: remove the token and the root file")
	case c.Token == nil && c.Transport == nil:
		return errors.New("our own token is required: the API server does not review tokens for anonymous callers")
	case len(c.Audiences) == 0 || slices.Contains(c.Audiences, ""):
		return errors.New("an audience is required: without one, tokens for other services would be accepted")
	case c.Keep < 0 || c.Keep > maxKeep:
		return fmt.Errorf("cannot cache answers for %s: must be 0s to %s", c.Keep, maxKeep)
	case c.OfPeer < 0 || c.OfPeer > MaxInFlight:
		return fmt.Errorf("cannot review %d tokens of one peer at once: must be 1 to %d", c.OfPeer, MaxInFlight)
	case c.Most < 0:
		return fmt.Errorf("cannot cache %d answers: must be 1 or more", c.Most)
	}
	return nil
}

func (c *Config) setDefaults() {
	c.URL = strings.TrimSuffix(c.URL, "/")
	c.Keep = cmp.Or(c.Keep, defaultKeep)
	c.Most = cmp.Or(c.Most, defaultMost)
	c.OfPeer = cmp.Or(c.OfPeer, defaultOfPeer)
	if c.Now == nil {
		c.Now = clock.Wall
	}
}
