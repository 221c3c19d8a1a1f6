package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// rest is how long an authority is not asked whose reply was signed by a client CA: each costs a
// certificate.
const rest = 10 * time.Minute

// Authorities keeps the authorities that are a client CA of any cluster from being asked, and their
// certificates from being given out. The client CAs of the request's own cluster must be known;
// those of another that was never reached stop nobody. Its refusals are not final. It is safe for
// concurrent use.
type Authorities struct {
	log      *slog.Logger
	clusters func() []*ClientCA

	mu      sync.Mutex
	stopped map[string]stop // by authority
	logged  map[logLine]time.Time
}

var _ ra.Guard = (*Authorities)(nil)

// NewAuthorities returns one that calls clusters for those that there are now, which must not block.
func NewAuthorities(log *slog.Logger, clusters func() []*ClientCA) *Authorities {
	return &Authorities{log: log, clusters: clusters, stopped: map[string]stop{}, logged: map[logLine]time.Time{}}
}

// logLine is a line of the log. A warning keeps no error out of it.
type logLine struct {
	level           slog.Level
	what, authority string
}

// stop is an authority that is not asked for a while.
type stop struct {
	err   error
	until time.Time
}

// Before implements [ra.Guard].
func (a *Authorities) Before(authority, cluster string, roots *pki.Bundle) error {
	if err := a.before(authority, cluster, roots); err != nil {
		return a.refuse("authority not asked", authority, err)
	}
	return nil
}

func (a *Authorities) before(authority, cluster string, roots *pki.Bundle) error {
	a.mu.Lock()
	s := a.stopped[authority]
	a.mu.Unlock()
	if left := time.Until(s.until); left > 0 {
		return wait(ca.Errorf(ca.NotConfigured, "%w", s.err), left)
	}
	return a.each(cluster, func(g *ClientCA) error { return g.Check(authority, roots) })
}

// After implements [ra.Guard]: the roots and the client CAs may have changed meanwhile.
func (a *Authorities) After(cert ra.Certificate, cluster string) error {
	err := a.after(cert, cluster)
	if err == nil {
		return nil
	}
	if found(err) { // a cluster that is not known now costs this certificate alone
		a.halt(cert.Authority, err)
	}
	return a.refuse("authority's certificate discarded", cert.Authority, err)
}

func (a *Authorities) after(cert ra.Certificate, cluster string) error {
	above, err := aboveLeaf(cert.Authority, cert.Chain)
	if err != nil {
		return err
	}
	return a.each(cluster, func(g *ClientCA) error {
		if err := g.Check(cert.Authority, cert.Roots); err != nil {
			return err
		}
		return g.check(cert.Authority, "intermediate", above)
	})
}

// each checks all clusters whose client CAs are known, and demands that those of home are.
func (a *Authorities) each(home string, check func(*ClientCA) error) error {
	var ofHome error
	known := false
	for _, g := range a.clusters() {
		err := check(g)
		if found(err) {
			return err
		}
		if g.cfg.Cluster == home {
			ofHome, known = err, true
		}
	}
	if !known {
		return wait(ca.Errorf(ca.Unavailable, "the client CAs of cluster %.253q are not known: it is not connected", home), soon)
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
func (a *Authorities) halt(authority string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped[authority] = stop{err, time.Now().Add(rest)}
}

// refuse logs what became of a request, each once a minute for an authority.
func (a *Authorities) refuse(what, authority string, err error) error {
	line := logLine{slog.LevelWarn, what, authority} // an unknown CA: the next look mends it
	if found(err) {
		line.level = slog.LevelError
	}
	if a.due(line) {
		a.log.Log(context.Background(), line.level, what, "authority", authority, "error", text.Clean(err.Error()))
	}
	return err
}

// due reports whether a line was not logged in the last minute, and notes that it is now.
func (a *Authorities) due(line logLine) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, now := a.logged[line], time.Now()
	if !last.IsZero() && now.Sub(last) < time.Minute {
		return false
	}
	a.logged[line] = now
	return true
}
