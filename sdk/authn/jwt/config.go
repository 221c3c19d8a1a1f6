// Package jwt (experimental) authenticates callers by JSON Web Tokens (RFC 7519) of an OpenID
// Connect issuer: a server calls [New] once per issuer. Verification is offline, with the
// issuer's keys from discovery, a URL or a file; a goroutine runs only while keys are fetched.
package jwt

import (
	"cmp"
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

// known lists the algorithms that may be allowed: public key signatures. With HS256 the
// public key would be the secret, and none proves nothing.
var known = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	defaultLeeway = 30 * time.Second
	maxLeeway     = 5 * time.Minute
)

// Config selects which tokens are accepted and how subjects map to identities.
type Config struct {
	// Issuer is the exact claim iss; a trailing slash matters. Required.
	Issuer string
	// Audiences are ours: a token must be for at least one of them. Required.
	Audiences []string

	// JWKSURL or JWKSFile locates the issuer's keys (RFC 7517, section 5); set at most
	// one. Default: from the issuer's /.well-known/openid-configuration.
	JWKSURL, JWKSFile string
	// RootFile holds the roots (PEM) that verify the issuer's servers. Default: the
	// system roots.
	RootFile string
	// AllowLoopbackHTTP permits http for the issuer and its keys on this machine.
	// Default: https only.
	AllowLoopbackHTTP bool

	// ServiceAccounts maps subjects system:serviceaccount:… to SPIFFE IDs, in the
	// format of [authn.ParseTemplate]. Default: these subjects are refused.
	ServiceAccounts string
	// TrustDomain allows subjects that are SPIFFE IDs in this trust domain. Default:
	// these subjects are refused.
	TrustDomain string
	// SPIFFEID maps verified claims, as decoded by encoding/json, to a SPIFFE ID. It
	// covers every subject, so set either it or one or both of the two above. It must
	// be safe for concurrent use.
	SPIFFEID func(claims map[string]any) (string, error)

	// Algorithms are those accepted (RFC 7518, section 3.1, and EdDSA of RFC 8037).
	// Default: RS, PS and ES with 256, 384 and 512, and EdDSA.
	Algorithms []string
	// Leeway is the tolerated clock difference to the issuer: 5 minutes at most.
	// Default: 30 seconds.
	Leeway time.Duration
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log receives failures to fetch keys, once per attempt. Default: [slog.Default].
	Log *slog.Logger
}

// New checks the settings; it fetches nothing before the first token.
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
		return errors.New("an issuer is required: the iss claim of its tokens")
	case len(c.Audiences) == 0 || slices.Contains(c.Audiences, ""):
		return errors.New("an audience is required: without one, tokens for other services would be accepted")
	case c.JWKSURL != "" && c.JWKSFile != "":
		return errors.New("keys come from a URL or from a file, not both")
	case c.SPIFFEID != nil && c.ServiceAccounts+c.TrustDomain != "":
		return errors.New("SPIFFEID cannot be combined with service_accounts and trust_domain")
	case c.SPIFFEID == nil && c.ServiceAccounts == "" && c.TrustDomain == "":
		return errors.New("service_accounts or trust_domain is required: without them, no token identifies a caller")
	case c.Leeway < 0 || c.Leeway > maxLeeway:
		return fmt.Errorf("leeway is %s: must be 0s to %s", c.Leeway, maxLeeway)
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
		return errors.New("an issuer with discovery must not have a query or a fragment")
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
			return nil, fmt.Errorf("algorithm %.64q is not allowed: must be one of %v", name, known)
		}
		allowed = append(allowed, jose.SignatureAlgorithm(name))
	}
	return allowed, nil
}

func (c *Config) setDefaults() {
	c.Leeway = cmp.Or(c.Leeway, defaultLeeway)
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = cmp.Or(c.Log, slog.Default())
}
