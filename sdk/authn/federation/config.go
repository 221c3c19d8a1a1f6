// Package federation (experimental) keeps the roots of trust domains published at SPIFFE bundle
// endpoints (SPIFFE Federation standard). A server creates a [Source] with [New], runs
// [Source.Run], which has a goroutine per endpoint, and passes Source.Bundle to
// authn.Certificates as Roots. An agent instead gives each [Source.Authority] to a
// secret.Manager, which serves the roots. A [Publisher] is the endpoint of a trust domain of one's
// own.
package federation

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Endpoint is the bundle endpoint of one trust domain.
type Endpoint struct {
	TrustDomain string
	// URL is an https URL without user information (section 5.1).
	URL string
	// ServerID is the SPIFFE ID of the server, verified with the roots held here for
	// its trust domain (profile https_spiffe, section 5.2.2). Default: the server has a
	// Web PKI certificate (https_web, section 5.2.1).
	ServerID string
	// RootFile holds the roots (PEM) for https_web. Default: the system roots.
	RootFile string
	// Initial holds the roots until the first fetch. A server in this same trust domain
	// cannot be verified without them. Default: none.
	Initial *pki.Bundle
}

// Options tune a [Source].
type Options struct {
	// Roots returns the roots of trust domains without an endpoint here, such as our
	// own. Default: none.
	Roots func(trustDomain string) *pki.Bundle
	// Kept returns the roots that were fetched in an earlier run, which verify a server as the
	// initial ones do, until the first answer: those may be long gone, so an [Authority] does not
	// send them if there are any of these. Default: none.
	Kept func(trustDomain string) *pki.Bundle
	// Changed is called with a trust domain whose roots have changed, and with the first answer
	// of its endpoint, which may confirm the initial ones. It must not block. Default: none.
	Changed func(trustDomain string)
	// JWTKeys is called with the keys of a trust domain's JWT-SVIDs, a JWK set, after each good
	// answer of its endpoint, which is not asked again before it returns. Default: none.
	JWTKeys func(trustDomain string, jwks []byte)
	// WITKeys is JWTKeys for the keys of WIT-SVIDs, each with "use":"wit-svid". Experimental.
	// Default: none.
	WITKeys func(trustDomain string, jwks []byte)
	// Log receives changes and failures. Default: [slog.Default].
	Log *slog.Logger
}

// New checks the endpoints. It fetches nothing; see [Source.Run].
func New(endpoints []Endpoint, opts Options) (*Source, error) {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	s := &Source{Options: opts, domains: map[string]*domain{}, wall: clock.Wall}
	for _, e := range endpoints {
		d, err := s.newDomain(e)
		if err != nil {
			return nil, fmt.Errorf("bundle endpoint of %.256q: %w", e.TrustDomain, err)
		}
		s.domains[e.TrustDomain] = d
	}
	for _, d := range s.domains {
		if err := s.checkServer(d); err != nil {
			return nil, fmt.Errorf("bundle endpoint of %q: %w", d.TrustDomain, err)
		}
	}
	return s, nil
}

func (s *Source) newDomain(e Endpoint) (*domain, error) {
	if err := pki.CheckTrustDomain(e.TrustDomain); err != nil {
		return nil, err
	}
	if s.domains[e.TrustDomain] != nil {
		return nil, errors.New("duplicate trust domain")
	}
	if err := endpoint.CheckURL(e.URL, false); err != nil {
		return nil, err
	}
	d := &domain{Endpoint: e, roots: e.Initial, status: Status{TrustDomain: e.TrustDomain, URL: e.URL}}
	d.authority = &Authority{s, d}
	options := endpoint.Options{RootFile: e.RootFile, Timeout: fetchTimeout}
	if e.ServerID != "" {
		server, err := spiffeid.FromString(e.ServerID)
		if err != nil {
			return nil, fmt.Errorf("invalid SPIFFE ID %.256q of the server: %w", e.ServerID, err)
		}
		d.server = server
		options.TLS = s.settingsFor(server)
	}
	d.fetch = fetchFrom(endpoint.New(options), e)
	return d, nil
}

// checkServer ensures that a server can ever be verified.
func (s *Source) checkServer(d *domain) error {
	if d.ServerID == "" {
		return nil
	}
	if d.RootFile != "" {
		return errors.New("a root file applies only to https_web; a server with a SPIFFE ID is verified with the roots of its trust domain")
	}
	domain := d.server.TrustDomain().Name()
	if s.domains[domain] == nil && s.Roots == nil || domain == d.TrustDomain && d.Initial.Len() == 0 {
		return fmt.Errorf("no source of roots for %q to verify %s: set initial roots", domain, d.server)
	}
	return nil
}

// Status is the state of an endpoint.
type Status struct {
	TrustDomain, URL string
	Roots            int
	// Fetched is the time of the last good answer, zero before the first.
	Fetched time.Time
	// Problem is why the last attempt failed, empty if it succeeded.
	Problem string
}

// Answered returns the roots that are held of a trust domain, and whether its endpoint has published them:
// before the first answer they are the initial ones. A trust domain that has revoked all of its roots has
// none. Callers must not modify the bundle.
func (s *Source) Answered(trustDomain string) (*pki.Bundle, bool) {
	d := s.domains[trustDomain]
	if d == nil {
		return nil, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.roots, !d.status.Fetched.IsZero()
}
