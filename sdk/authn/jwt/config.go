// Package jwt knows callers by JSON Web Tokens (RFC 7519) that an OpenID Connect
// issuer has signed: [New] returns the authenticator for one issuer. It verifies
// offline with the issuer's keys, which it gets by discovery, from a URL or a file.
package jwt

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// known are the algorithms that can be allowed: signatures with a public key. With
// HS256 the public key itself would be the secret, and none proves nothing.
var known = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	defaultLeeway = 30 * time.Second
	maxLeeway     = 5 * time.Minute
)

// Config says whose tokens are taken, and who their subjects are.
type Config struct {
	// Issuer is the claim iss, to the letter: a slash at its end counts. Required.
	Issuer string
	// Audiences are ours: a token must be for one of them at least. Required.
	Audiences []string

	// JWKSURL and JWKSFile are where the issuer's keys are (RFC 7517, section 5). One of
	// them at most. Default: where the issuer's /.well-known/openid-configuration says.
	JWKSURL, JWKSFile string
	// RootFile holds the roots (PEM) that the issuer's servers are verified with.
	// Default: the system's.
	RootFile string
	// AllowLoopbackHTTP lets the issuer and its keys be at http on this machine.
	// Default: https only.
	AllowLoopbackHTTP bool

	// ServiceAccounts makes SPIFFE IDs of subjects system:serviceaccount:…, as
	// [authn.ParseTemplate] takes it. Default: these subjects are refused.
	ServiceAccounts string
	// TrustDomain is the one in which a subject may be a SPIFFE ID itself. Default:
	// these subjects are refused.
	TrustDomain string
	// SPIFFEID makes the SPIFFE ID of verified claims, which are what encoding/json
	// makes of them. It knows every subject, so that it stands alone: exactly one of it
	// and of the other two's pair is required. It must be safe for concurrent use.
	SPIFFEID func(claims map[string]any) (string, error)

	// Algorithms are those that are taken (RFC 7518, section 3.1, and EdDSA of RFC
	// 8037). Default: RS, PS and ES with 256, 384 and 512, and EdDSA.
	Algorithms []string
	// Leeway is how far the issuer's clock may be off: 5 minutes at most. Default: 30
	// seconds.
	Leeway time.Duration
	// Now is the wall clock. Default: that of this machine.
	Now func() time.Time
	// Log is told when keys cannot be had, once for each try. Default: silent.
	Log *slog.Logger
}

// New checks the settings; nothing is asked before the first token comes.
func New(cfg Config) (*Verifier, error) {
	v, err := newVerifier(cfg)
	if err != nil {
		return nil, fmt.Errorf("JWT issuer %.256q: %w", cfg.Issuer, err)
	}
	return v, nil
}

func newVerifier(cfg Config) (*Verifier, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	template, err := authn.ParseTemplate(cfg.ServiceAccounts)
	if err != nil {
		return nil, err
	}
	algorithms, err := cfg.algorithms()
	if err != nil {
		return nil, err
	}
	cfg.setDefaults()
	return &Verifier{cfg: cfg, template: template, algorithms: algorithms, keys: newKeys(cfg)}, nil
}

func (c Config) check() error {
	switch {
	case c.Issuer == "":
		return errors.New("an issuer is required: the text of its tokens' claim iss")
	case len(c.Audiences) == 0 || slices.Contains(c.Audiences, ""):
		return errors.New("an audience is required: without one, a token for any other service would do here")
	case c.JWKSURL != "" && c.JWKSFile != "":
		return errors.New("its keys come from a URL or from a file, not from both")
	case c.SPIFFEID != nil && c.ServiceAccounts+c.TrustDomain != "":
		return errors.New("a subject has one SPIFFE ID: service_accounts and trust_domain do not go with SPIFFEID")
	case c.SPIFFEID == nil && c.ServiceAccounts == "" && c.TrustDomain == "":
		return errors.New("nobody is known by its tokens: service_accounts or trust_domain is required")
	case c.Leeway < 0 || c.Leeway > maxLeeway:
		return fmt.Errorf("a leeway of %s is not allowed: 0 to %s is", c.Leeway, maxLeeway)
	}
	if c.TrustDomain != "" {
		if err := pki.CheckTrustDomain(c.TrustDomain); err != nil {
			return err
		}
	}
	return c.checkSource()
}

func (c Config) checkSource() error {
	switch {
	case c.JWKSFile != "":
		return nil
	case c.JWKSURL != "":
		return endpoint.CheckURL(c.JWKSURL, c.AllowLoopbackHTTP)
	case strings.ContainsAny(c.Issuer, "?#"):
		return errors.New("an issuer that is discovered has no query and no fragment")
	}
	return endpoint.CheckURL(c.Issuer, c.AllowLoopbackHTTP)
}

func (c Config) algorithms() ([]jose.SignatureAlgorithm, error) {
	if len(c.Algorithms) == 0 {
		return known, nil
	}
	var allowed []jose.SignatureAlgorithm
	for _, name := range c.Algorithms {
		if !slices.Contains(known, jose.SignatureAlgorithm(name)) {
			return nil, fmt.Errorf("the algorithm %.64q is not allowed: %v are", name, known)
		}
		allowed = append(allowed, jose.SignatureAlgorithm(name))
	}
	return allowed, nil
}

func (c *Config) setDefaults() {
	if c.Leeway == 0 {
		c.Leeway = defaultLeeway
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}
