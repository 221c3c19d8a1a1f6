package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestFirstSubscriptionOrders(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.delay.Store(int64(time.Second))
		h := e.subscribe("A.Shop.Example.ORG.")
		e.answer("a.shop.example.org", secret.ErrNotReady)
		after(time.Second)
		item := e.has("A.Shop.Example.ORG.")
		if h.notices.Load() != 1 || item.Name != "a.shop.example.org" || item.Identity.DNSNames[0] != "a.shop.example.org" {
			t.Errorf("%d notices, %v", h.notices.Load(), item)
		}
		if e.has("a.shop.example.org") != item {
			t.Error("each spelling has an item of its own")
		}
		e.orders(1)
		if s := e.rule(); s.Held != 1 || s.Issued != 1 || s.Orders != 1 || s.Names != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestNameWithoutRuleCostsNothing(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) {
		c.Reserved = func(name string) bool { return name == "configured.shop.example.org" }
	}, func(e *engine) {
		for _, name := range []string{
			"example.org", "a.b.shop.example.org", "shop.example.org", "default", "10.0.0.1", "*.shop.example.org",
			"a_b.shop.example.org", "", ".", "a..shop.example.org", "configured.shop.example.org", "a.shop.example.org\x00",
		} {
			if h := e.subscribe(name); !errors.Is(h.err, secret.ErrUnknown) {
				t.Errorf("%q: %v", name, h.err)
			}
			e.answer(name, secret.ErrUnknown)
		}
		e.orders(0)
		if s := e.Status(); s.Rules[0].Names != 0 || s.Refused[ondemand.BadName] != 7 || s.Refused[ondemand.NoRule] != 5 {
			t.Errorf("%+v", s)
		}
	})
}

func TestHundredWatchersMakeOneOrder(t *testing.T) {
	ask := &asker{say: func(context.Context, string) (bool, error) { time.Sleep(time.Second); return true, nil }}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = ask }, func(e *engine) {
		e.ca.delay.Store(int64(time.Second))
		var all []*handshake
		for range 100 {
			all = append(all, e.subscribe("a.shop.example.org"))
			time.Sleep(10 * time.Millisecond)
		}
		after(2 * time.Second)
		e.has("a.shop.example.org")
		e.orders(1)
		for _, h := range all {
			if h.notices.Load() != 1 {
				t.Fatalf("%d notices", h.notices.Load())
			}
		}
		if ask.calls.Load() != 1 {
			t.Errorf("%d questions", ask.calls.Load())
		}
	})
}

func TestRefusedNameIsUnknownAtOnce(t *testing.T) {
	ask := &asker{say: func(_ context.Context, name string) (bool, error) { time.Sleep(time.Second); return false, nil }}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = ask }, func(e *engine) {
		h := e.subscribe("a.shop.example.org")
		e.answer("a.shop.example.org", secret.ErrNotReady)
		after(time.Second)
		e.answer("a.shop.example.org", secret.ErrUnknown)
		if h.notices.Load() != 1 {
			t.Errorf("%d notices", h.notices.Load())
		}
		h.stop()
		e.orders(0)
		e.refused(map[ondemand.Refusal]uint64{ondemand.Denied: 1})
		if s := e.rule(); s.Names != 0 || s.New != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestUndecidedNewNameIsRefusedAndHeldOneRenewed(t *testing.T) {
	ask := &asker{say: answers(true, nil)}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = ask }, func(e *engine) {
		e.subscribe("a.shop.example.org")
		first := e.has("a.shop.example.org")
		ask.set(answers(false, errors.New("away")))
		e.subscribe("b.shop.example.org")
		e.answer("b.shop.example.org", secret.ErrUnknown)
		after(18 * time.Hour)
		if e.has("a.shop.example.org") == first {
			t.Error("it was not renewed")
		}
		e.orders(2)
	})
}

// An ask that is away may be back before the client gives up.
func TestUndecidedNewNameWaits(t *testing.T) {
	ask := &asker{say: answers(false, ca.Errorf(ca.Unavailable, "away"))}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = ask }, func(e *engine) {
		for range 10 {
			e.subscribe(aShop)
			after(200 * time.Millisecond)
			e.answer(aShop, secret.ErrNotReady)
		}
		ask.set(answers(true, nil))
		after(time.Second)
		e.has(aShop)
		ask.set(answers(false, ca.Errorf(ca.Unavailable, "away")))
		e.subscribe(bShop)
		after(6900 * time.Millisecond)
		e.answer(bShop, secret.ErrNotReady)
		after(1200 * time.Millisecond)
		e.answer(bShop, secret.ErrUnknown)
		e.orders(1)
		e.refused(map[ondemand.Refusal]uint64{ondemand.Undecided: 1})
		if n := ask.calls.Load(); n > 12 || e.rule().New != 0 {
			t.Errorf("%d questions, %+v", n, e.rule())
		}
		ask.set(answers(false, &ca.Error{Reason: ca.RateLimited, Err: errors.New("a flood")}))
		e.subscribe("c.shop.example.org")
		e.answer("c.shop.example.org", secret.ErrUnknown)
	})
}

func TestNameThatAskRefusesLaterIsServedToItsEnd(t *testing.T) {
	ask := &asker{say: answers(true, nil)}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = ask }, func(e *engine) {
		h := e.subscribe("a.shop.example.org")
		item := e.has("a.shop.example.org")
		ask.set(answers(false, nil))
		after(item.NotAfter.Sub(e.now()) - time.Second)
		if e.has("a.shop.example.org") != item || ask.calls.Load() > 20 {
			t.Errorf("another item, or %d questions", ask.calls.Load())
		}
		after(2 * time.Second)
		e.answer("a.shop.example.org", secret.ErrUnknown)
		h.stop()
		after(retry)
		e.orders(1)
		if s := e.rule(); s.Names != 0 {
			t.Errorf("%+v", s)
		}
	})
}

const retry = 25 * time.Hour

func TestOrderGoesOnAfterWait(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.delay.Store(int64(20 * time.Second))
		h := e.subscribe("a.shop.example.org")
		after(7900 * time.Millisecond)
		e.answer("a.shop.example.org", secret.ErrNotReady)
		after(200 * time.Millisecond)
		e.answer("a.shop.example.org", secret.ErrUnknown)
		if h.notices.Load() != 1 {
			t.Errorf("%d notices", h.notices.Load())
		}
		h.stop() // as Envoy does
		after(4 * time.Second)
		again := e.subscribe("a.shop.example.org")
		e.answer("a.shop.example.org", secret.ErrNotReady)
		after(8 * time.Second)
		e.has("a.shop.example.org")
		e.orders(1)
		if again.notices.Load() != 1 {
			t.Errorf("%d notices", again.notices.Load())
		}
		e.refused(map[ondemand.Refusal]uint64{ondemand.TooLate: 1})
	})
}

func TestPendingOrderGoesOnWithoutSubscriber(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Next(20, catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Second}})
		h := e.subscribe("a.shop.example.org")
		after(9 * time.Second)
		h.stop()
		e.answer("a.shop.example.org", secret.ErrUnknown)
		after(time.Minute)
		e.has("a.shop.example.org")
		requests := e.ca.Requests()
		for _, r := range requests {
			if r.ID != requests[0].ID {
				t.Error("another order was made")
			}
		}
	})
}

func TestFailingNameBacksOff(t *testing.T) {
	limit := &budget{}
	limit.left.Store(1000)
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Budget = limit }, func(e *engine) {
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		for range 5 * 3600 {
			h := e.subscribe("a.shop.example.org")
			after(200 * time.Millisecond)
			h.stop()
		}
		synctest.Wait()
		if n := len(e.ca.Requests()); n > 25 || n < 3 || int64(n) != limit.failed.Load() {
			t.Errorf("%d orders, %d of them failed", n, limit.failed.Load())
		}
		after(time.Hour)
		if s := e.rule(); s.Names != 0 || s.New != 0 {
			t.Errorf("a name without a client is kept: %+v", s)
		}
	})
}

// A renewal that the authority refuses again and again is bounded by the budget, and one that
// cannot reach it is not.
func TestRefusedRenewalsCountInTheBudget(t *testing.T) {
	limit := &budget{}
	limit.left.Store(4)
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Budget = limit }, func(e *engine) {
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "away")})
		after(20 * time.Hour)
		if n := len(e.ca.Requests()); n < 10 || limit.left.Load() != 3 || limit.failed.Load() != 0 {
			t.Errorf("%d orders, %d left", n, limit.left.Load())
		}
		n := len(e.ca.Requests())
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "the domain leads elsewhere")})
		after(3 * 24 * time.Hour)
		e.orders(n + 4)
		if limit.failed.Load() != 4 {
			t.Errorf("%d orders failed", limit.failed.Load())
		}
	})
}

func TestReloadWhileAskedAsksTheNewDecider(t *testing.T) {
	old := &asker{say: func(context.Context, string) (bool, error) {
		time.Sleep(time.Second)
		return false, errors.New("closed")
	}}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = old }, func(e *engine) {
		e.subscribe("a.shop.example.org")
		after(time.Millisecond)
		next := shop()
		next.Ask = &asker{say: answers(true, nil)}
		if err := e.Apply([]ondemand.Rule{next}); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		e.has("a.shop.example.org")
	})
}

func TestBudgetBoundsNewNames(t *testing.T) {
	limit := &budget{}
	limit.left.Store(10)
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Budget = limit }, func(e *engine) {
		for i := range 1000 {
			h := e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
			after(time.Millisecond)
			h.stop()
		}
		e.orders(10)
		if s := e.rule(); s.Names != 10 || s.Held != 10 || s.Refused[ondemand.OverBudget] != 990 {
			t.Errorf("%+v", s)
		}
		after(18 * time.Hour)
		if s := e.rule(); s.Renewed != 10 {
			t.Errorf("%+v", s)
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	for name, evict := range map[string]bool{"refused": false, "evicted": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Names, c.Rules[0].Evict = 100, evict }, func(e *engine) {
				kept := e.subscribe("kept.shop.example.org")
				defer kept.stop()
				for i := range 300 {
					h := e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
					after(time.Second)
					h.stop()
				}
				e.has("kept.shop.example.org")
				s := e.rule()
				if s.Names != 100 || s.Held != 100 {
					t.Errorf("%+v", s)
				}
				if evict {
					e.has("n299.shop.example.org")
					e.has("n201.shop.example.org")
					e.answer("n200.shop.example.org", secret.ErrUnknown)
					return
				}
				e.has("n98.shop.example.org")
				if s.Refused[ondemand.Full] != 201 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestIdleNameIsNotRenewedAndDropped(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Idle = 6 * time.Hour; c.Storage = newStorage() }, func(e *engine) {
		idle, used := e.subscribe("idle.shop.example.org"), e.subscribe("used.shop.example.org")
		e.has("idle.shop.example.org")
		idle.stop()
		after(19 * time.Hour)
		e.orders(3)
		after(4 * time.Hour)
		e.has("idle.shop.example.org")
		after(2 * time.Hour)
		e.answer("idle.shop.example.org", secret.ErrUnknown)
		e.has("used.shop.example.org")
		used.stop()
		after(50 * time.Hour)
		if s := e.rule(); s.Names != 0 || s.Dropped != 2 {
			t.Errorf("%+v", s)
		}
		if store := e.config.Storage.(*storage); len(store.records) != 0 {
			t.Errorf("%d records are left", len(store.records))
		}
	})
}

func TestNameWhoseRenewalFailsIsNotRetriedForEver(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.subscribe("a.shop.example.org") // Envoy keeps its subscription
		e.has("a.shop.example.org")
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "the domain leads elsewhere")})
		after(5 * 24 * time.Hour)
		n := len(e.ca.Requests())
		after(10 * 24 * time.Hour)
		e.orders(n)
		e.ca.Always(catest.Fault{})
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
	})
}

func TestClockJumps(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.subscribe("a.shop.example.org")
		first := e.has("a.shop.example.org")
		e.jump.Store(int64(-48 * time.Hour))
		after(time.Minute)
		e.orders(1)
		e.jump.Store(int64(20 * time.Hour))
		after(time.Minute)
		if e.has("a.shop.example.org") == first {
			t.Error("it was not renewed")
		}
		e.orders(2)
	})
}

func TestCertificateForAnotherNameIsRefused(t *testing.T) {
	for name, check := range map[string]pki.NameCheck{"exact": pki.ExactNames, "any": pki.AnyName} {
		t.Run(name, func(t *testing.T) { refusesAnotherName(t, check) })
	}
}

func refusesAnotherName(t *testing.T, check pki.NameCheck) {
	bubble(t, func(e *engine, _ *ondemand.Config) {
		err := e.manager.Reload(
			[]secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
			[]secret.Authority{{Name: "test", Client: e.ca, Names: &check}})
		if err != nil {
			t.Fatal(err)
		}
	}, func(e *engine) {
		e.ca.Always(catest.Fault{Break: func(d *catest.Draft) { d.Leaf.DNSNames = []string{"b.shop.example.org"} }})
		e.subscribe("a.shop.example.org")
		after(9 * time.Second) // it may be tried twice
		e.answer("a.shop.example.org", secret.ErrUnknown)
		e.answer("b.shop.example.org", secret.ErrUnknown)
	})
}

func TestClientThatComesWhileQuestionEndsIsServed(t *testing.T) {
	ask := &asker{say: func(ctx context.Context, _ string) (bool, error) {
		select {
		case <-time.After(time.Second):
			return true, nil
		case <-ctx.Done():
			time.Sleep(100 * time.Millisecond) // it notices late
			return false, ctx.Err()
		}
	}}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = ask }, func(e *engine) {
		h := e.subscribe("a.shop.example.org")
		after(500 * time.Millisecond)
		h.stop()
		after(50 * time.Millisecond)
		e.subscribe("a.shop.example.org")
		after(2 * time.Second)
		e.has("a.shop.example.org")
		e.refused(map[ondemand.Refusal]uint64{})
	})
}

func TestQueuedNameIsOrderedAfterItsClientsWaitedInVain(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].InFlight = 1 }, func(e *engine) {
		e.ca.delay.Store(int64(10 * time.Second))
		for _, name := range []string{"a", "b", "c"} {
			h := e.subscribe(name + ".shop.example.org")
			go func() {
				time.Sleep(9 * time.Second)
				h.stop()
			}()
		}
		after(40 * time.Second)
		e.has("c.shop.example.org")
		e.orders(3)
	})
}

func TestRefusalsAreNoFailures(t *testing.T) {
	limit := &budget{}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Budget = limit }, func(e *engine) {
		e.subscribe("a.shop.example.org")
		e.answer("a.shop.example.org", secret.ErrUnknown)
		if e.count(secret.Failed) != 0 || e.rule().Failing != 0 {
			t.Errorf("events %v, %+v", e.events, e.rule())
		}
		e.refused(map[ondemand.Refusal]uint64{ondemand.OverBudget: 1})
	})
}

// An expired certificate stays where it is until there is another.
func TestFailedRenewalRemovesNothing(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		h := e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		before := h.notices.Load()
		after(30 * time.Hour)
		if n := h.notices.Load(); n != before || e.count(secret.Expired) != 1 {
			t.Errorf("%d notices, events %v", n-before, e.events)
		}
		e.ca.Always(catest.Fault{})
		e.Kick("")
		e.has("a.shop.example.org")
		if h.notices.Load() == before {
			t.Error("no notice of the new one")
		}
	})
}
