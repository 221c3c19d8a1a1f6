package ondemand_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// counted counts the calls of a machine's storage, by kind.
func (m *machine) counted() func() map[string]int {
	var mu sync.Mutex
	calls := map[string]int{}
	m.set(func() {
		m.step = func(call string) {
			mu.Lock()
			defer mu.Unlock()
			if call != "changes" {
				calls[call]++
			}
		}
	})
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}
}

// A flood of names must not become a flood of claims: an API server has other clients, too.
func TestNameOverBudgetReachesNoSharedStorage(t *testing.T) {
	limit := &budget{}
	machines(t, 2, func(i int, c *ondemand.Config) {
		if i == 0 {
			c.Rules[0].Budget = limit
		}
	}, func(f *fleet) {
		calls := f.machines[0].counted()
		e := f.engines[0]
		for i := range 500 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
			after(time.Millisecond)
		}
		if got := calls(); len(got) > 0 {
			t.Errorf("500 names over the budget: %v", got)
		}
		e.refused(map[ondemand.Refusal]uint64{ondemand.OverBudget: 500})
		// What another machine has is served all the same, and costs no budget.
		f.engines[1].subscribe(shopA)
		after(3 * time.Second)
		e.subscribe(shopA)
		e.has(shopA)
		limit.left.Store(1)
		e.subscribe("b.shop.example.org")
		after(time.Second)
		e.has("b.shop.example.org")
		if left := limit.left.Load(); left != 0 {
			t.Errorf("%d orders are left", left)
		}
	})
}

// An order that another machine makes costs nothing here, however often it was waited for.
func TestNameThatAnotherMachineOrdersCostsNoBudget(t *testing.T) {
	limit := &budget{}
	limit.left.Store(3)
	machines(t, 2, func(i int, c *ondemand.Config) {
		if i == 0 {
			c.Rules[0].Budget = limit
		}
	}, func(f *fleet) {
		f.ca.delay.Store(int64(5 * time.Second))
		f.engines[1].subscribe(shopA)
		after(10 * time.Millisecond)
		f.engines[0].subscribe(shopA)
		after(7 * time.Second)
		f.engines[0].has(shopA)
		f.distinct(1)
		if left := limit.left.Load(); left != 3 {
			t.Errorf("%d orders are left, want 3", left)
		}
	})
}

// So does an order that a killed machine has begun.
func TestOrderOfAKilledMachineCostsNoBudget(t *testing.T) {
	limit := &budget{}
	limit.left.Store(3)
	machines(t, 2, func(i int, c *ondemand.Config) {
		if i == 1 {
			c.Rules[0].Budget = limit
		}
	}, func(f *fleet) {
		f.machines[1].set(func() { f.machines[1].poll = time.Hour }) // it has not seen the order
		f.ca.hang.Store(true)
		f.engines[0].subscribe(shopA)
		after(10 * time.Millisecond)
		f.kill(0)
		f.ca.hang.Store(false)
		for range 30 {
			f.engines[1].subscribe(shopA)
			after(time.Second)
			if _, err := f.engines[1].Peek(secret.Caller{}, shopA); err == nil {
				break
			}
		}
		f.engines[1].has(shopA)
		f.distinct(1)
		if left := limit.left.Load(); left != 3 {
			t.Errorf("%d orders are left, want 3", left)
		}
	})
}

// What the store has is not known if it was away at the start, and must not be refused for the budget.
func TestHeldNameIsServedOverBudgetAfterAStartWithoutStore(t *testing.T) {
	machines(t, 2, func(i int, c *ondemand.Config) {
		if i == 1 {
			c.Rules[0].Budget = &budget{}
		}
	}, func(f *fleet) {
		f.engines[0].subscribe(shopA)
		held := f.engines[0].has(shopA)
		e, m := f.engines[1], f.machines[1]
		e.Close()
		m.set(func() { m.away, m.seen, m.poll = ca.Errorf(ca.Unavailable, "away"), nil, time.Hour })
		e.start()
		after(time.Millisecond)
		m.set(func() { m.away = nil })
		e.subscribe(shopA)
		after(500 * time.Millisecond)
		if e.has(shopA).Fingerprint != held.Fingerprint {
			t.Error("it is another certificate")
		}
	})
}
