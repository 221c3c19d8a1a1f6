package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Who owns a few namespaces can make a provider fail for each, again and again.
func TestFaultsOfSomeTenantsPauseNoOther(t *testing.T) {
	a := newAuthority(limits)
	const bad = 6
	for n := range bad {
		a.failing(fmt.Sprint("bad ", n), 1000, ca.ErrInternal)
	}
	a.until(begin.Add(10 * time.Minute))
	for n := range 20 {
		i, since := a.good(fmt.Sprint("good ", n)), a.now
		a.until(a.now.Add(90 * time.Second))
		a.waited(t, i, since, 2*a.latency) // a trial of another may be under way
	}
	for n := range 10 {
		for range 1000 {
			a.good(fmt.Sprint("good ", n))
		}
	}
	from, failed := len(a.at), a.failed
	a.until(a.now.Add(10 * time.Minute))
	if good := len(a.at) - from - (a.failed - failed); good < 7*600*85/100 {
		t.Errorf("%d calls of the others in ten minutes, the quota is %d", good, 7*600)
	}
}

// However many they are, they have no more than their own turns.
func TestFaultsOfManyTenantsLeaveOthersTheirTurns(t *testing.T) {
	for _, bad := range []int{20, 60, 200} {
		a := newAuthority(limits)
		for n := range 10 {
			for range 1000 {
				a.good(fmt.Sprint("good ", n))
			}
		}
		for n := range bad {
			a.failing(fmt.Sprint("bad ", n), 1000, ca.ErrInternal)
		}
		a.until(begin.Add(10 * time.Minute))
		if good, share := len(a.at)-a.failed, 7*600*10/(10+bad); good < share {
			t.Errorf("%d bad: %d calls of the others in ten minutes, their share is %d", bad, good, share)
		}
	}
}

// Nor do they delay one who asks seldom, once each has failed a few times.
func TestTenantsThatFailedDelayNoNewOne(t *testing.T) {
	a := newAuthority(limits)
	for n := range 60 {
		a.failing(fmt.Sprint("bad ", n), 1000, ca.ErrInternal)
	}
	a.until(begin.Add(2 * time.Hour))
	for n := range 20 {
		i, since := a.good(fmt.Sprint("good ", n)), a.now
		a.until(a.now.Add(90 * time.Second))
		a.waited(t, i, since, 3*a.latency)
	}
}

// A call that hangs keeps the trial of another tenant from nothing.
func TestCallThatHangsDelaysNoTrial(t *testing.T) {
	a := newAuthority(limits)
	a.add("hangs", 1)
	if i, _ := a.Next(a.now); i == nil {
		t.Fatal("no call")
	}
	a.together(t, "a", "b", "c")
	a.add("good", 1)
	if i, wait := a.Next(a.now); i == nil || i.Tenant != "good" {
		t.Errorf("got %v, the next in %s", i, wait)
	}
}

// Nor do trials of other tenants that hang, now or since before the last answer.
func TestTrialsThatHangDelayNoOther(t *testing.T) {
	a := newAuthority(limits)
	take := func(tenant string) *Item {
		t.Helper()
		a.add(tenant, 1)
		i, wait := a.Next(a.now)
		if i == nil || i.Tenant != tenant {
			t.Fatalf("want a call of %s: got %v, the next in %s", tenant, i, wait)
		}
		a.now = a.now.Add(time.Millisecond)
		return i
	}
	for range 3 {
		a.together(t, "a", "b", "c")
		take("hangs 1")
		take("hangs 2")
		a.Done(take("good"), nil, a.now)
		a.now = a.now.Add(2 * time.Minute)
	}
	if n := a.Status().InFlight; n != 6 {
		t.Errorf("%d in flight", n)
	}
}
