package federation

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// Without a hint, an endpoint is queried every 5 minutes (SPIFFE Trust Domain and
	// Bundle, section 4.1.2, leaves it open); a hint is clamped to the two bounds.
	defaultRefresh = 5 * time.Minute
	minRefresh     = 30 * time.Second
	maxRefresh     = 24 * time.Hour
	firstRetry     = 5 * time.Second
	maxRetry       = 10 * time.Minute
	fetchTimeout   = 30 * time.Second
)

// Source holds the roots of several trust domains. It is safe for concurrent use.
type Source struct {
	Options
	domains map[string]*domain // immutable
	wall    func() time.Time   // [clock.Wall]; another in tests
}

// domain is the state of one trust domain.
type domain struct {
	Endpoint
	server spiffeid.ID
	fetch  func(context.Context) (published, error)

	authority *Authority

	mu     sync.Mutex
	roots  *pki.Bundle
	status Status
	// useless is why the first key left out of the last answer cannot be used.
	useless string
}

// Bundle returns the current roots of a trust domain, or nil. Fetched roots stay while
// the endpoint fails. Callers must not modify the bundle.
func (s *Source) Bundle(trustDomain string) *pki.Bundle {
	if d := s.domains[trustDomain]; d != nil {
		return d.current()
	}
	if s.Roots != nil {
		return s.Roots(trustDomain)
	}
	return nil
}

func (d *domain) current() *pki.Bundle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.roots
}

// Status returns the state of each endpoint, by trust domain.
func (s *Source) Status() []Status {
	var all []Status
	for _, d := range s.domains {
		d.mu.Lock()
		status := d.status
		status.Roots = d.roots.Len()
		d.mu.Unlock()
		all = append(all, status)
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.TrustDomain, b.TrustDomain) })
	return all
}

// Run fetches from each endpoint, at once and then at its refresh interval, until ctx
// ends and all fetches are done. It may be called once.
func (s *Source) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, d := range s.domains {
		all.Go(func() { s.follow(ctx, d) })
	}
	all.Wait()
}

// follow refetches one bundle until ctx ends.
func (s *Source) follow(ctx context.Context, d *domain) {
	refresh := defaultRefresh
	var waits rotation.Waits
	for ctx.Err() == nil {
		got, err := d.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		var wait time.Duration
		if err == nil {
			waits.Reset()
			refresh = got.refresh
			wait = spread(refresh)
		} else {
			wait = waits.Next(rotation.Row{First: firstRetry, Most: min(refresh, maxRetry)})
		}
		s.take(d, got, err)
		rotation.Sleep(ctx, wait, s.wall, nil)
	}
}

// spread subtracts up to a tenth, so that many agents do not query at once.
func spread(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// take records the result of an attempt and reports changed roots.
func (s *Source) take(d *domain, got published, err error) {
	if err != nil {
		problem := d.fail(err)
		s.Log.Warn("cannot fetch SPIFFE bundle", "trust_domain", d.TrustDomain, "held", d.current().Len(), "error", problem)
		return
	}
	s.keep(d, got)
}

// fail records why an attempt failed.
func (d *domain) fail(err error) string {
	problem := text.Clean(err.Error())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status.Problem = problem
	return problem
}

// keep takes a good answer and reports what has changed.
func (s *Source) keep(d *domain, got published) {
	d.mu.Lock()
	roots, first := !d.roots.Equal(got.roots), d.status.Fetched.IsZero()
	d.roots, d.status.Fetched, d.status.Problem = got.roots, time.Now(), ""
	news := got.useless != "" && got.useless != d.useless
	d.useless = got.useless
	d.mu.Unlock()
	if news {
		s.Log.Warn("keys of a SPIFFE bundle are left out", "trust_domain", d.TrustDomain, "first", got.useless)
	}
	if s.JWTKeys != nil {
		s.JWTKeys(d.TrustDomain, got.jwks)
	}
	if s.WITKeys != nil && got.wits != nil {
		s.WITKeys(d.TrustDomain, got.wits)
	}
	if roots {
		s.Log.Info("trust domain roots changed", "trust_domain", d.TrustDomain, "fingerprints", got.roots.Fingerprints(), "passed_over", got.passedOver)
	}
	if (roots || first) && s.Changed != nil {
		s.Changed(d.TrustDomain)
	}
}

// settingsFor verifies a server by its SPIFFE ID with the current roots.
func (s *Source) settingsFor(server spiffeid.ID) func() *tls.Config {
	return func() *tls.Config {
		return tlsconfig.TLSClientConfig(bundleSource{s}, tlsconfig.AuthorizeID(server))
	}
}

// verifiers returns the roots that a server of a trust domain is verified with.
func (s *Source) verifiers(trustDomain string) *pki.Bundle {
	roots := s.Bundle(trustDomain)
	if d := s.domains[trustDomain]; d != nil && d.unheard() {
		return roots.Union(s.kept(trustDomain))
	}
	return roots
}

// kept returns the roots of an earlier run.
func (s *Source) kept(trustDomain string) *pki.Bundle {
	if s.Kept == nil {
		return nil
	}
	return s.Kept(trustDomain)
}

func (d *domain) unheard() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status.Fetched.IsZero()
}

// bundleSource supplies go-spiffe with the roots held here.
type bundleSource struct{ source *Source }

// GetX509BundleForTrustDomain returns the roots, or an error if there are none.
func (h bundleSource) GetX509BundleForTrustDomain(trustDomain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	roots := h.source.verifiers(trustDomain.Name())
	if roots.Len() == 0 {
		return nil, fmt.Errorf("no roots for trust domain %q", trustDomain.Name())
	}
	return x509bundle.FromX509Authorities(trustDomain, roots.Certificates()), nil
}
