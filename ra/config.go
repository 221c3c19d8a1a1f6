package ra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/ra/internal/rootphase"
	"github.com/countersign-dev/countersign/ra/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// Config configures an [Engine].
type Config struct {
	// Policy grants names to subjects. Each rule's authority and doors are below.
	Policy      *Policy
	Authorities []Authority
	Doors       []Door
	// Audit takes a line for each certificate and each refusal. Required: nothing is given
	// out that it has not taken.
	Audit  Sink
	Budget Budget
	// Guard has a say before an authority is asked, and before its certificate is given out.
	// Default: none.
	Guard Guard
	// Store keeps a small record for each authority over restarts. Without one, the roots
	// that an authority returns first after a restart are trusted at once. Default: none.
	Store Store
	// Observe receives each outcome, for metrics. It must not block. Default: none.
	Observe func(Event)
	// RootsChanged receives each new set of roots to publish, one call at a time for an
	// authority, and must not block. See [Engine.RootsWritten]. Default: none.
	RootsChanged func(authority string, roots *pki.Bundle)
	// Tracer follows each request, from the span of its caller where there is one. Default:
	// none.
	Tracer trace.Tracer
	// Now is the wall clock. Default: the system's.
	Now func() time.Time
	// Log is for operators. Default: [slog.Default].
	Log *slog.Logger
}

// Authority is a certificate authority with the rules for calling it and for its replies.
type Authority struct {
	Name string
	// Client signs. If it is a [ca.NameCertifier], it can serve callers whose CSRs have no
	// names, and ones that have others than granted. If it is a [ca.RootWatcher] or
	// [ca.RootSource], the engine learns roots from that as well as from replies.
	Client ca.Client
	// Token returns the credential for the next request. Default: none.
	Token func(context.Context) (ca.Bearer, error)
	// TokenRejected receives a token that the authority rejected, before Token is called
	// once more. It must not block. Default: none.
	TokenRejected func(ca.Token)
	// PinnedRoots are the only roots accepted from this authority. Default: any.
	PinnedRoots *pki.Bundle
	// AcceptLongerTTL accepts certificates that outlive what was asked for, at doors that
	// do. Default: as the [ca.Facts] of the reply state, else false.
	AcceptLongerTTL *bool
	// Timeout limits each call of Client or Token. Default: 30 seconds.
	Timeout time.Duration
	Limits  Limits
	// Share returns the part of the Rate and the Burst in Limits that this engine may use now,
	// from 0 to 1, where several share the authority's quota: package share. It is called before
	// each call of the authority and must not block. See [Engine.ShareChanged]. Default: all.
	Share func() float64
	Roots Roots
}

// Limits bound the calls of an authority.
type Limits struct {
	// Rate is the most calls a second. It is lowered while the authority replies that it is
	// too much. Default: 5.
	Rate float64
	// Burst is the most calls at once after a rest. Default: the rate, 1 at least.
	Burst int
	// InFlight is the most calls at the same time; a namespace has half of them. Default:
	// 32.
	InFlight int
	// Queue is the most requests that wait. Default: 10,000.
	Queue int
	// Reserve: every so many turns, one goes to those that hold a certificate and renew it.
	// Default: 4.
	Reserve int
}

// Roots describes how an authority's roots reach those who verify with them.
type Roots struct {
	// Wait is how long a root is published before certificates below it are given out.
	// Default: 10 minutes, which a trust bundle needs.
	Wait time.Duration
	// ByReply is set if some learn roots only with their own certificates, as in a mesh: a
	// new root also waits for the certificates that were out when it was announced to end.
	ByReply bool
	// Confirmed makes a root count as published only once [Engine.RootsWritten] reports it.
	// Default: at once.
	Confirmed bool
	// Unplanned is how long after a root was announced certificates below it are held back at
	// most, if the authority signs below it before it is published long enough. Default: 10
	// minutes.
	Unplanned time.Duration
	// Interval is the time between calls to a [ca.RootSource]. Default: 5 minutes.
	Interval time.Duration
	// Led is set if another engine with the same Store, which is an [Updater], decides where each
	// root stands. This one goes by that record as soon as there is one. Default: false.
	Led bool
}

// Budget bounds the certificates of one holder (a pod; a service account on a node; a machine; one
// set of names that a namespace asks for), of one subject that can make holders ([Rule.Holders]), and of
// one namespace. A new key does not make a new holder. Each engine counts for itself.
type Budget struct {
	// Holder is how many certificates a holder gets at once after a rest, and HolderEvery
	// the time in which it gains one more. Default: 10, and 5 minutes.
	Holder      int
	HolderEvery time.Duration
	// Namespace and NamespaceEvery are the same for a namespace. Default: 10,000, and 100
	// milliseconds.
	Namespace      int
	NamespaceEvery time.Duration
}

// Store keeps small records over restarts. Its methods may block; one goroutine at a time
// calls them for an authority.
type Store interface {
	// Load returns the last record saved under the name; none, without an error, if there
	// is none. After an error it is called again, and nothing is signed before; only one with
	// the reason [ca.Invalid] means that the record is of no use, so that it is replaced.
	Load(ctx context.Context, name string) ([]byte, error)
	Save(ctx context.Context, name string, record []byte) error
}

// Updater is a Store whose records several engines keep at the same time. One of them leads, and
// the others have Roots.Led set. Each reads the record every ten seconds, or every Roots.Interval
// if that is shorter, and adds until when the certificates live that it gave out.
type Updater interface {
	Store
	// Update replaces a record with what change makes of it, or keeps it if that is the same. If
	// another has replaced it meanwhile, change is called again. An error leaves open whether it
	// was kept.
	Update(ctx context.Context, name string, change func(record []byte) []byte) error
}

func (c Config) withDefaults() Config {
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	if c.RootsChanged == nil {
		c.RootsChanged = func(string, *pki.Bundle) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Log = loglimit.Limit(c.Log)
	c.Budget = Budget{
		cmp.Or(c.Budget.Holder, 10), cmp.Or(c.Budget.HolderEvery, 5*time.Minute),
		cmp.Or(c.Budget.Namespace, 10000), cmp.Or(c.Budget.NamespaceEvery, 100*time.Millisecond),
	}
	return c
}

func (a Authority) withDefaults() Authority {
	a.Timeout = cmp.Or(a.Timeout, 30*time.Second)
	if a.TokenRejected == nil {
		a.TokenRejected = func(ca.Token) {}
	}
	l := &a.Limits
	l.Rate = cmp.Or(l.Rate, 5)
	l.Burst = cmp.Or(l.Burst, max(1, int(l.Rate)))
	l.InFlight, l.Queue, l.Reserve = cmp.Or(l.InFlight, 32), cmp.Or(l.Queue, 10000), cmp.Or(l.Reserve, 4)
	r := &a.Roots
	r.Wait, r.Unplanned = cmp.Or(r.Wait, 10*time.Minute), cmp.Or(r.Unplanned, 10*time.Minute)
	r.Interval = cmp.Or(r.Interval, 5*time.Minute)
	return a
}

func (l Limits) schedule() schedule.Limits {
	return schedule.Limits{Rate: l.Rate, Burst: float64(l.Burst), InFlight: l.InFlight, Length: l.Queue, Reserve: l.Reserve}
}

func (r Roots) phases() rootphase.Config {
	return rootphase.Config{Wait: r.Wait, Outstanding: r.ByReply, Confirmed: r.Confirmed, Unplanned: r.Unplanned, Led: r.Led}
}

// check returns all that is wrong, with the defaults set.
func (c Config) check() error {
	var errs []error
	if c.Policy == nil {
		errs = append(errs, errors.New("there is no policy"))
	}
	if c.Audit == nil {
		errs = append(errs, errors.New("there is no audit log, and nothing is given out without one"))
	}
	if b := c.Budget; min(b.Holder, b.Namespace) < 1 || min(b.HolderEvery, b.NamespaceEvery) <= 0 {
		errs = append(errs, fmt.Errorf("a budget is %+v: use more than 0 for each", b))
	}
	names := map[string]bool{}
	for _, a := range c.Authorities {
		if names[a.Name] {
			errs = append(errs, fmt.Errorf("there are two authorities %q", a.Name))
		}
		names[a.Name] = true
		errs = append(errs, a.check())
		if _, ok := c.Store.(Updater); a.Roots.Led && !ok {
			errs = append(errs, fmt.Errorf("authority %q: who is led needs a Store that is an Updater", a.Name))
		}
	}
	for _, d := range c.Doors {
		errs = append(errs, d.valid())
	}
	return errors.Join(errs...)
}

func (a Authority) check() error {
	l, r := a.Limits, a.Roots
	switch {
	case a.Name == "":
		return errors.New("an authority has no name")
	case a.Client == nil:
		return fmt.Errorf("authority %q has no client", a.Name)
	case a.Timeout < 0:
		return fmt.Errorf("authority %q: timeout is %s; use more than 0", a.Name, a.Timeout)
	case !(l.Rate > 0) || l.Burst < 0 || min(l.InFlight, l.Queue, l.Reserve) < 1: // rejects NaN as well
		return fmt.Errorf("authority %q: limits are %+v; use more than 0 for each", a.Name, l)
	case min(r.Wait, r.Unplanned, r.Interval) < 0:
		return fmt.Errorf("authority %q: times of roots are %+v; use more than 0 for each", a.Name, r)
	case a.PinnedRoots != nil && a.PinnedRoots.Len() == 0:
		return fmt.Errorf("authority %q: pinned roots are empty, so nothing could be verified", a.Name)
	}
	return nil
}

func (d Door) valid() error {
	switch {
	case d.Name == "":
		return errors.New("a door has no name")
	case min(d.MinLifetime, d.MaxLifetime, d.MaxBackdating, d.LeastTTL) < 0 || d.MaxLifetime > 0 && d.MaxLifetime < d.MinLifetime:
		return fmt.Errorf("door %q: its limits are %s to %s, backdated by %s", d.Name, d.MinLifetime, d.MaxLifetime, d.MaxBackdating)
	}
	if err := checkKeyTypes(d.KeyTypes); err != nil {
		return fmt.Errorf("door %q: %w", d.Name, err)
	}
	return nil
}
