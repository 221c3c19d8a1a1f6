package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestRequestsThatFailDelayTheirTenantAlone(t *testing.T) {
	a := newAuthority(limits)
	a.add("poison", 1000)
	for n := range 10 {
		a.add(fmt.Sprint("good ", n), 1000)
	}
	a.answer = func(i *Item, _ time.Time) error {
		if i.Tenant == "poison" {
			return ca.ErrInternal
		}
		return nil
	}
	a.until(begin.Add(10 * time.Minute))
	if good := len(a.at) - a.failed; good < 7*600*95/100 {
		t.Errorf("%d calls of the others in ten minutes, the quota is %d", good, 7*600)
	}
	if a.failed > 30 {
		t.Errorf("%d calls failed", a.failed)
	}
}

// Each waits for a person, and for a time of its own.
func TestPendingRequestsDelayNoOther(t *testing.T) {
	a := newAuthority(limits)
	a.add("waits", 1000)
	a.add("good", 1000)
	a.answer = func(i *Item, _ time.Time) error {
		if i.Tenant == "waits" {
			return &ca.Error{Reason: ca.Pending, RetryAfter: 10 * time.Minute}
		}
		return nil
	}
	a.until(begin.Add(2 * time.Minute))
	if n := len(a.at); n < 7*120*95/100 {
		t.Errorf("%d calls in two minutes, the quota is %d", n, 7*120)
	}
}

// A tenant whose calls hang leaves half of the slots to the others.
func TestHangingCallsLeaveSlotsToOthers(t *testing.T) {
	a := newAuthority(limits)
	a.latency = time.Hour
	a.add("hangs", 100)
	a.until(begin.Add(10 * time.Second))
	a.add("other", 1)
	a.until(begin.Add(11 * time.Second))
	if len(a.flying) != 11 || a.flying[10].Tenant != "other" {
		t.Errorf("%d calls in flight", len(a.flying))
	}
}

func TestAuthorityThatIsDownIsAskedSeldom(t *testing.T) {
	for name, tenants := range map[string]int{"one tenant": 1, "two": 2, "a hundred": 100} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(limits)
			for n := range tenants {
				a.add(fmt.Sprint("tenant ", n), 1000)
			}
			a.answer = func(*Item, time.Time) error { return ca.ErrUnavailable }
			a.until(begin.Add(30 * time.Minute))
			if len(a.at) > 100*min(tenants, 2) {
				t.Errorf("%d calls in half an hour", len(a.at))
			}
			a.answer = func(*Item, time.Time) error { return nil }
			a.until(a.now.Add(2 * time.Minute))
			if n := a.mostWithin(10 * time.Second); n < 70*95/100 {
				t.Errorf("two minutes after it is back there are %d calls in ten seconds", n)
			}
		})
	}
}

// together begins calls of tenants at once, and has all of them fail a second later.
func (a *authority) together(t *testing.T, tenants ...string) {
	t.Helper()
	for _, tenant := range tenants {
		a.add(tenant, 1)
	}
	var calls []*Item
	for range tenants {
		i, wait := a.Next(a.now)
		if i == nil {
			t.Fatalf("%d of %d calls began, the next in %s", len(calls), len(tenants), wait)
		}
		calls = append(calls, i)
	}
	a.now = a.now.Add(time.Second)
	for _, i := range calls {
		a.Done(i, ca.ErrUnavailable, a.now)
	}
}

// first is the longest that the first wait can be; the second is 1.5 s at least.
const first = 1250 * time.Millisecond

func TestCallsThatFailTogetherRaiseWaitOnce(t *testing.T) {
	a := newAuthority(Limits{Rate: 100, Burst: 100, InFlight: 20, Length: 1000, Reserve: 5})
	a.together(t, "a", "a", "a", "a", "a", "a", "a", "a")
	a.add("a", 1)
	if i, wait := a.Next(a.now); i != nil || wait <= 0 || wait > first {
		t.Errorf("got %v, the next in %s, want the first wait", i, wait)
	}
	a.now = a.now.Add(first)
	i, _ := a.Next(a.now)
	if i == nil {
		t.Fatal("none went out after the wait")
	}
	a.now = a.now.Add(time.Second)
	a.Done(i, ca.ErrUnavailable, a.now)
	a.add("a", 1)
	if i, wait := a.Next(a.now); i != nil || wait <= first {
		t.Errorf("after one more: %v, the next in %s, want a longer wait", i, wait)
	}
}

func TestTenantsThatFailTogetherStopAuthorityOnce(t *testing.T) {
	a := newAuthority(Limits{Rate: 100, Burst: 100, InFlight: 20, Length: 1000, Reserve: 5})
	a.together(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	if wait := a.Status().Until.Sub(a.now); wait <= 0 || wait > first {
		t.Errorf("all wait for %s, want the first wait", wait)
	}
}
