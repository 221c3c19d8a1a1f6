package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// rest is how long an authority is not asked whose reply was signed by a client CA: each costs a
// certificate.
const rest = 10 * time.Minute

// Engine tells which authority a request goes to. [*ra.Engine] does.
type Engine interface {
	Decide(s ra.Subject, door string) ra.Decision
	Roots(authority string) *pki.Bundle
}

// Issuer returns an issuer that asks next only where the request's authority is no client CA of
// any cluster, and gives out no certificate that a client CA has signed. The client CAs of the
// request's own cluster must be known; those of another that was never reached stop nobody.
// clusters returns the clusters there are now, and must not block. Its refusals are not final.
func Issuer(next signing.Issuer, engine Engine, log *slog.Logger, clusters func() []*ClientCA) signing.Issuer {
	return &issuer{next: next, engine: engine, log: log, clusters: clusters, stopped: map[string]stop{}, logged: map[[2]string]time.Time{}}
}

type issuer struct {
	next     signing.Issuer
	engine   Engine
	log      *slog.Logger
	clusters func() []*ClientCA

	mu      sync.Mutex
	stopped map[string]stop         // by authority
	logged  map[[2]string]time.Time // by what, and authority
}

// stop is an authority that is not asked for a while.
type stop struct {
	err   error
	until time.Time
}

// Issue implements [signing.Issuer].
func (i *issuer) Issue(ctx context.Context, req ra.Request) (ra.Certificate, error) {
	authority := i.engine.Decide(req.Subject, req.Door).Authority
	if authority == "" { // denied, which is next's to say
		return i.next.Issue(ctx, req)
	}
	if err := i.before(authority, req.Subject.Cluster); err != nil {
		return ra.Certificate{}, i.refuse("authority not asked", authority, err)
	}
	cert, err := i.next.Issue(ctx, req)
	if err != nil {
		return cert, err
	}
	if err := i.after(cert, req.Subject.Cluster); err != nil {
		if found(err) { // a cluster that is not known now costs this certificate alone
			i.halt(cert.Authority, err)
		}
		return ra.Certificate{}, i.refuse("authority's certificate withheld", cert.Authority, err)
	}
	return cert, nil
}

func (i *issuer) before(authority, cluster string) error {
	i.mu.Lock()
	s := i.stopped[authority]
	i.mu.Unlock()
	if left := time.Until(s.until); left > 0 {
		return wait(ca.Errorf(ca.NotConfigured, "%w", s.err), left)
	}
	roots := i.engine.Roots(authority)
	return i.each(cluster, func(g *ClientCA) error { return g.Check(authority, roots) })
}

// after looks at what came: the policy, the roots and the client CAs may have changed meanwhile.
func (i *issuer) after(cert ra.Certificate, cluster string) error {
	above, err := aboveLeaf(cert.Authority, cert.Chain)
	if err != nil {
		return err
	}
	return i.each(cluster, func(g *ClientCA) error {
		if err := g.Check(cert.Authority, cert.Roots); err != nil {
			return err
		}
		return g.check(cert.Authority, "intermediate", above)
	})
}

// each checks all clusters whose client CAs are known, and demands that those of home are.
func (i *issuer) each(home string, check func(*ClientCA) error) error {
	ofHome := wait(ca.Errorf(ca.Unavailable, "the client CAs of cluster %.253q are not known: it is not connected", home), soon)
	for _, g := range i.clusters() {
		err := check(g)
		if found(err) {
			return err
		}
		if g.cfg.Cluster == home {
			ofHome = err
		}
	}
	return ofHome
}

// found reports whether an error says that a check found something, not that nobody can tell now.
func found(err error) bool { return errors.Is(err, ca.ErrNotConfigured) }

// When requests come back, of which thousands may be waiting: for what mends itself, and for what
// an operator must mend.
const soon, late = 10 * time.Second, time.Minute

func wait(err *ca.Error, after time.Duration) error {
	err.RetryAfter = after
	return err
}

// halt has an authority not asked for a while. There are as many as the policy names.
func (i *issuer) halt(authority string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped[authority] = stop{err, time.Now().Add(rest)}
}

// refuse logs what became of a request, each once a minute for an authority.
func (i *issuer) refuse(what, authority string, err error) error {
	i.mu.Lock()
	line := [2]string{what, authority}
	last, now := i.logged[line], time.Now()
	due := last.IsZero() || now.Sub(last) >= time.Minute
	if due {
		i.logged[line] = now
	}
	i.mu.Unlock()
	if due {
		i.log.Error(what, "authority", authority, "error", text.Clean(err.Error()))
	}
	return err
}
