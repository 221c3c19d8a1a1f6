package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/tokenbucket"
	"github.com/countersign-dev/countersign/sdk/ca"
)

var (
	begin  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limits = Limits{Rate: 7, Burst: 7, InFlight: 20, Length: 100000, Reserve: 5}
)

// authority is a CA in virtual time: each call takes latency, and it answers as it likes.
type authority struct {
	*Queue
	now     time.Time
	latency time.Duration
	answer  func(i *Item, now time.Time) error
	flying  []*Item
	started []*Item
	at      []time.Time // when each began
	failed  int
}

func newAuthority(l Limits) *authority {
	return &authority{Queue: New(l), now: begin, latency: time.Second, answer: func(*Item, time.Time) error { return nil }}
}

func (a *authority) add(tenant string, n int) {
	for range n {
		a.Add(&Item{Tenant: tenant, Rank: a.now}, a.now)
	}
}

// until runs the queue by virtual time until end; it never polls.
func (a *authority) until(end time.Time) {
	for {
		i, wait := a.Next(a.now)
		if i != nil {
			a.flying, a.started, a.at = append(a.flying, i), append(a.started, i), append(a.at, a.now)
			continue
		}
		next := end
		if wait > 0 && a.now.Add(wait).Before(next) {
			next = a.now.Add(wait)
		}
		landing := len(a.flying) > 0 && !a.flying[0].began.Add(a.latency).After(next)
		if landing {
			next = a.flying[0].began.Add(a.latency)
		}
		a.now = next
		if !landing && !next.Before(end) {
			return
		}
		if landing {
			a.land()
		}
	}
}

func (a *authority) land() {
	i := a.flying[0]
	a.flying = a.flying[1:]
	err := a.answer(i, a.now)
	if err != nil {
		a.failed++
	}
	a.Done(i, err, a.now)
}

// mostWithin returns the most calls that began within any time d.
func (a *authority) mostWithin(d time.Duration) (most int) {
	first := 0
	for n, at := range a.at {
		for at.Sub(a.at[first]) >= d {
			first++
		}
		most = max(most, n-first+1)
	}
	return most
}

func TestTenThousandOfOneTenantDelayNoOther(t *testing.T) {
	a := newAuthority(limits)
	a.add("flood", 10000)
	a.until(begin.Add(time.Minute))
	a.add("quiet", 1)
	a.until(a.now.Add(400 * time.Millisecond))
	for _, i := range a.started {
		if i.Tenant == "quiet" {
			return
		}
	}
	t.Error("the other tenant's request has not begun after two turns' time")
}

func TestTurnsGoRoundTenants(t *testing.T) {
	a := newAuthority(limits)
	for n := range 50 {
		a.add(fmt.Sprint("tenant ", n), 1000*(n%3)+10)
	}
	a.until(begin.Add(time.Minute))
	counts := map[string]int{}
	for _, i := range a.started {
		counts[i.Tenant]++
	}
	for name, n := range counts {
		if least := len(a.started) / 50; n < least || n > least+1 {
			t.Errorf("%s had %d turns of %d", name, n, len(a.started))
		}
	}
	if len(counts) != 50 {
		t.Errorf("only %d tenants had a turn", len(counts))
	}
}

func TestConfiguredQuotaIsUsedAndNeverExceeded(t *testing.T) {
	a := newAuthority(limits)
	for n := range 100 {
		a.add(fmt.Sprint("tenant ", n), 1000)
	}
	a.until(begin.Add(time.Hour))
	if n, want := len(a.at), 7*3600; n < want*95/100 {
		t.Errorf("%d calls in an hour, the quota is %d", n, want)
	}
	for _, d := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour} {
		if n, most := a.mostWithin(d), int(7*d.Seconds())+7; n > most {
			t.Errorf("%d calls within %s, %d are the quota and the burst", n, d, most)
		}
	}
}

// quota is a CA's own: so many a second, and so many at once.
type quota struct {
	bucket        tokenbucket.Bucket
	rate, burst   float64
	after         time.Duration
	good, refused int
}

func (q *quota) answer(_ *Item, now time.Time) error {
	if q.bucket.Wait(now, q.rate, q.burst) > 0 {
		q.refused++
		return &ca.Error{Reason: ca.RateLimited, RetryAfter: q.after}
	}
	q.bucket.Spend()
	q.good++
	return nil
}

func TestRateFollowsAuthoritysQuota(t *testing.T) {
	for name, after := range map[string]time.Duration{"silent": 0, "waits a second": time.Second, "waits ten": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			l := limits
			l.Rate = 30
			a := newAuthority(l)
			for n := range 100 {
				a.add(fmt.Sprint("tenant ", n), 1000)
			}
			q := &quota{rate: 7, burst: 7, after: after}
			a.answer = q.answer
			a.until(begin.Add(time.Hour))
			if q.good < 7*3600*90/100 {
				t.Errorf("%d certificates, the quota is %d", q.good, 7*3600)
			}
			if q.refused > q.good/20 {
				t.Errorf("%d calls were refused, %d were not", q.refused, q.good)
			}
			q.rate, q.burst = 1000, 1000
			a.until(a.now.Add(10 * time.Minute))
			if got := a.Status().Rate; got != 30 {
				t.Errorf("ten minutes after the quota was raised the rate is %v", got)
			}
		})
	}
}

func TestAuthoritysWaitIsKept(t *testing.T) {
	a := newAuthority(limits)
	a.add("a", 100)
	a.answer = func(*Item, time.Time) error { return &ca.Error{Reason: ca.RateLimited, RetryAfter: time.Minute} }
	a.until(begin.Add(2 * time.Second)) // the burst, of half the slots
	begun := len(a.at)
	a.until(begin.Add(59 * time.Second))
	if len(a.at) != begun {
		t.Errorf("%d calls within the minute that the authority asked for", len(a.at)-begun)
	}
	a.until(begin.Add(69 * time.Second))
	if n := len(a.at) - begun; n != 1 {
		t.Errorf("%d calls after it, want one to try", n)
	}
}

func TestRenewalsGetTheirReserve(t *testing.T) {
	a := newAuthority(limits)
	for n := range 200 {
		a.add(fmt.Sprint("new ", n), 100)
	}
	for range 300 { // ranked after all new ones
		a.Add(&Item{Tenant: "old", Renewal: true, Rank: begin.Add(time.Hour)}, a.now)
	}
	a.until(begin.Add(2 * time.Minute))
	renewed := 0
	for _, i := range a.started {
		if i.Renewal {
			renewed++
		}
	}
	if n := len(a.started); renewed < n/5 || renewed > n/4 {
		t.Errorf("%d of %d turns were for renewals, a fifth is theirs", renewed, n)
	}
}

func TestLowestRankGoesFirstWithinTenant(t *testing.T) {
	a := newAuthority(limits)
	for n := range 20 {
		a.Add(&Item{Tenant: "a", Renewal: n%2 == 0, Rank: begin.Add(time.Duration(n*7%20) * time.Second)}, a.now)
	}
	a.until(begin.Add(time.Minute))
	var last [classes]time.Time
	for _, i := range a.started {
		if i.Rank.Before(last[i.class()]) {
			t.Errorf("rank %s came after %s", i.Rank, last[i.class()])
		}
		last[i.class()] = i.Rank
	}
	if len(a.started) != 20 {
		t.Errorf("%d of 20 had a turn", len(a.started))
	}
}

func TestFullQueueDropsOfWhoHasMost(t *testing.T) {
	l := limits
	l.Length = 100
	a := newAuthority(l)
	a.add("flood", 100)
	late := &Item{Tenant: "flood", Rank: begin.Add(time.Second)}
	if got := a.Add(late, a.now); got != late {
		t.Error("who fills the queue drops another's, or its own older request")
	}
	got := a.Add(&Item{Tenant: "quiet", Rank: a.now}, a.now)
	if got == nil || got.Tenant != "flood" {
		t.Errorf("dropped %+v", got)
	}
	if s := a.Status(); s.Waiting != 100 || s.Tenants != 2 {
		t.Errorf("got %+v", s)
	}
	if d := a.Delay(a.now); d < 14*time.Second || d > 15*time.Second {
		t.Errorf("the last in line waits %s", d)
	}
}

func TestReturnedTurnCostsNothing(t *testing.T) {
	a := newAuthority(limits)
	a.add("a", 50)
	for range 50 {
		i, _ := a.Next(a.now)
		if i == nil {
			t.Fatal("turns that were given back are used up")
		}
		a.Return(i, a.now)
	}
	if s := a.Status(); s != (Status{Rate: 7, Share: 1}) || len(a.tenants) != 0 {
		t.Errorf("left: %+v, %d tenants", s, len(a.tenants))
	}
}
