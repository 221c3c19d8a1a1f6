package ra

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra/internal/rootphase"
)

// Status is the state of one authority, for a page and for metrics.
type Status struct {
	Authority         string
	Waiting, InFlight int
	Namespaces        int           // that have something waiting
	Oldest            time.Duration // how long the first of those that wait has waited
	Rate, MostRate    float64       // calls a second, at present and as configured
	Share             float64       // of MostRate, that is this engine's when it was last looked at
	// HeldFor is how long nothing is asked, as the authority asked for that, is away, or signs
	// below a root that is too new; zero if it is asked.
	HeldFor time.Duration
	Held    string // why, where the root is too new
	Stopped []Stopped
	Roots   []RootStatus
	Record  string // why the record of the roots cannot be used, if it cannot
}

// Stopped is a rule whose requests are not sent, as replies to them cannot be given out.
type Stopped struct {
	Rule  string
	Since time.Time
	Error string
	// UpTo: requests for longer lifetimes are sent; zero if none are.
	UpTo time.Duration
}

// RootStatus is where a root stands.
type RootStatus struct {
	Fingerprint string // SHA-256, in hexadecimal
	// Phase is "announced" (to be published), "waiting" (published, not yet everywhere),
	// "trusted" (certificates below it are given out) or "withdrawn" (the authority names
	// it no more, and certificates below it live).
	Phase    string
	Since    time.Time
	Until    time.Time // when the phase ends by itself; zero if it does not
	NotAfter time.Time
	// Unplanned: the authority signed below it before its time.
	Unplanned bool
}

func rootStatus(r rootphase.Root) RootStatus {
	return RootStatus{r.Fingerprint, string(r.Phase), r.Since, r.Until, r.NotAfter, r.Unplanned}
}

// Status returns the state of all authorities, by name.
func (e *Engine) Status() []Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(e.authorities)) {
		all = append(all, e.authorities[name].status(time.Now()))
	}
	return all
}

// oldest returns how long the first of those that wait for the authority has waited.
func (a *authority) oldest(now time.Time) (wait time.Duration) {
	for _, f := range a.engine.flights {
		if f.authority == a && !f.landed && f.item.Began().IsZero() {
			wait = max(wait, now.Sub(f.begun))
		}
	}
	return wait
}

func (a *authority) status(now time.Time) Status {
	q := a.queue.Status()
	s := Status{
		Authority: a.conf.Name, Waiting: q.Waiting, InFlight: q.InFlight, Namespaces: q.Tenants, Oldest: a.oldest(now),
		Rate: q.Rate, MostRate: a.conf.Limits.Rate, Share: q.Share, HeldFor: max(a.hold.left(now), q.Until.Sub(now)),
	}
	if a.hold.left(now) > 0 {
		s.Held = a.hold.why.Error()
	}
	if a.record.useless != nil {
		s.Record = text.Clean(a.record.useless.Error())
	}
	for rule, by := range a.stops {
		if by.upTo == 0 {
			continue
		}
		one := Stopped{Rule: rule, Since: by.since, Error: text.Clean(by.err.Error())}
		if by.upTo != forAll {
			one.UpTo = by.upTo
		}
		s.Stopped = append(s.Stopped, one)
	}
	slices.SortFunc(s.Stopped, func(a, b Stopped) int { return strings.Compare(a.Rule, b.Rule) })
	if a.roots.phases != nil {
		for _, root := range a.roots.phases.Status() {
			s.Roots = append(s.Roots, rootStatus(root))
		}
	}
	return s
}
