package schedule

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// failing adds n requests of a tenant that come back as soon as they have failed, with the
// rank that they had.
func (a *authority) failing(tenant string, n int, err error) {
	a.add(tenant, n)
	before := a.answer
	a.answer = func(i *Item, now time.Time) error {
		if i.Tenant != tenant || i.Value != nil {
			return before(i, now)
		}
		a.Add(&Item{Tenant: tenant, Rank: i.Rank, Tried: now}, now)
		return err
	}
}

// good adds a request that the authority answers.
func (a *authority) good(tenant string) *Item {
	i := &Item{Tenant: tenant, Rank: a.now, Value: "good"}
	a.Add(i, a.now)
	return i
}

func (a *authority) waited(t *testing.T, i *Item, since time.Time, most time.Duration) {
	t.Helper()
	if i.Began().IsZero() || i.Began().Sub(since) > most {
		t.Errorf("its turn came at %s; it waits since %s, and may for %s", i.Began(), since, most)
	}
}

func TestWhatFailedGoesTurnByTurnWithTheOthers(t *testing.T) {
	a := newAuthority(Limits{Rate: 1, Burst: 1, InFlight: 1, Length: 100, Reserve: 5})
	for n := range 8 {
		i := &Item{Tenant: "a", Rank: begin.Add(time.Duration(n) * time.Second), Value: n}
		if n < 4 { // it asked before the others, and the last of these was tried first
			i.Tried = begin.Add(-time.Duration(n) * time.Minute)
		}
		a.Add(i, a.now)
	}
	a.until(begin.Add(time.Minute))
	var order []any
	for _, i := range a.started {
		order = append(order, i.Value)
	}
	if got := fmt.Sprint(order); got != "[4 3 5 2 6 1 7 0]" {
		t.Errorf("the order was %s", got)
	}
}

func TestRequestsThatFailAgainDelayThemselvesAlone(t *testing.T) {
	for name, err := range map[string]error{"away": ca.ErrUnavailable, "refused": ca.ErrDenied} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(limits)
			a.failing("a", 100, err)
			a.until(begin.Add(time.Hour))
			begun := len(a.at)
			for range 5 {
				i, since := a.good("a"), a.now
				a.until(a.now.Add(5 * time.Minute))
				a.waited(t, i, since, 2*time.Minute)
			}
			if calls := len(a.at) - begun; errors.Is(err, ca.ErrUnavailable) && calls > 200 { // two a minute, and some after each answer
				t.Errorf("%d calls in 25 minutes", calls)
			}
		})
	}
}

// A request that failed by another's fault is not behind those that fail for ever.
func TestRequestThatWasTriedGetsAnotherTurn(t *testing.T) {
	a := newAuthority(limits)
	a.failing("a", 10, ca.ErrUnavailable)
	a.until(begin.Add(time.Hour))
	i, since := &Item{Tenant: "a", Rank: a.now, Tried: a.now, Value: "good"}, a.now
	a.Add(i, a.now)
	a.until(a.now.Add(time.Hour))
	a.waited(t, i, since, 11*time.Minute)
}

// One at the end of many that were never tried does not wait for all of them to fail.
func TestSlowTenantIsTriedFromBothEnds(t *testing.T) {
	a := newAuthority(limits)
	a.failing("a", 1000, ca.ErrUnavailable)
	a.until(begin.Add(time.Minute))
	a.now = a.now.Add(time.Second)
	i, since := a.good("a"), a.now
	a.until(a.now.Add(time.Hour))
	a.waited(t, i, since, 2*time.Minute+2*time.Second)
}

func TestProbesGoToWhatWasNeverTried(t *testing.T) {
	a := newAuthority(limits)
	const tenants = 50
	for n := range tenants {
		a.failing(fmt.Sprint("tenant ", n), 10, ca.ErrUnavailable)
	}
	a.until(begin.Add(24 * time.Hour))
	for n := range 10 {
		i, since, begun := a.good(fmt.Sprint("tenant ", n*5)), a.now, len(a.at)
		a.until(a.now.Add(time.Hour))
		a.waited(t, i, since, 2*time.Minute+2*time.Second)
		if calls := len(a.at) - begun; calls > tenants*doubt+100 { // each has some after the answer
			t.Errorf("%d calls in an hour", calls)
		}
	}
}

func TestFailingTenantTakesNothingFromOthers(t *testing.T) {
	a := newAuthority(limits)
	a.failing("bad", 1000, ca.ErrInternal)
	for n := range 10 {
		a.add(fmt.Sprint("good ", n), 1000)
	}
	a.until(begin.Add(10 * time.Minute))
	if good := len(a.at) - a.failed; good < 7*600*95/100 {
		t.Errorf("%d calls of the others in ten minutes, the quota is %d", good, 7*600)
	}
	if a.failed > 60 {
		t.Errorf("%d calls failed", a.failed)
	}
}

func TestFullQueueDropsOfWhatThereIsMost(t *testing.T) {
	l := limits
	l.Length = 100
	a := newAuthority(l)
	for n := range 99 {
		a.Add(&Item{Tenant: "a", Rank: begin, Tried: begin.Add(time.Duration(n))}, a.now)
	}
	a.Add(&Item{Tenant: "a", Rank: begin.Add(time.Hour)}, a.now)
	if got := a.Add(&Item{Tenant: "a", Rank: begin.Add(2 * time.Hour)}, a.now); got == nil || got.Tried != begin.Add(98) {
		t.Errorf("dropped %+v, want what was tried last", got)
	}
	late := &Item{Tenant: "a", Rank: begin, Tried: begin.Add(time.Hour)}
	if got := a.Add(late, a.now); got != late {
		t.Errorf("dropped %+v for one more of what there is most", got)
	}
}
