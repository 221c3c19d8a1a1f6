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
