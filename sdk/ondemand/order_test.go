package ondemand_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestOrderThatIsNotSentCostsNoBudget(t *testing.T) {
	limit := &budget{}
	limit.left.Store(1)
	bubble(t, func(e *engine, c *ondemand.Config) { stored(e, c); c.Rules[0].Budget = limit }, func(e *engine) {
		e.storage().fail(func() error { return errors.New("no space left on device") })
		e.subscribe(aShop)
		e.answer(aShop, secret.ErrUnknown)
		e.storage().fail(nil)
		e.subscribe(aShop)
		e.has(aShop)
	})
}

// What is on disk of an order is enough to send it again.
func TestOrderIsResumedInSpiteOfStorage(t *testing.T) {
	for name, spoil := range map[string]func(*storage){
		"full": func(s *storage) { s.fail(func() error { return errors.New("no space left on device") }) },
		"slow": func(s *storage) {
			tries := 0
			s.fails(func() error {
				if tries++; tries < 3 {
					return ca.Errorf(ca.Unavailable, "away")
				}
				return nil
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, stored, func(e *engine) {
				e.ca.hang.Store(true)
				e.subscribe(aShop)
				after(time.Second)
				e.Close()
				e.ca.hang.Store(false)
				spoil(e.storage())
				e.start()
				after(time.Minute)
				if sent := e.orders(1); sent[0].ID != e.ca.hung.Load().ID {
					t.Error("another order was made")
				}
			})
		})
	}
}

func TestPendingOrderOutlivesItsRecord(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.ca.Next(4, catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Second}})
		e.subscribe(aShop)
		after(500 * time.Millisecond)
		e.storage().fails(func() error { return errors.New("it cannot be decrypted") }, nil)
		after(10 * time.Second)
		e.has(aShop)
		for _, r := range e.orders(5) {
			if r.ID != e.orders(5)[0].ID {
				t.Error("another order was made")
			}
		}
	})
}

func TestOrderIsNotSentToAnotherAuthority(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Always(catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Second}})
		e.subscribe(aShop)
		after(500 * time.Millisecond)
		next := shop()
		next.Certificate.Authorities = []string{"other"}
		if err := e.Apply([]ondemand.Rule{next}); err != nil {
			t.Fatal(err)
		}
		after(5 * time.Second)
		e.has(aShop)
		if sent := e.other.Requests(); len(sent) != 1 || sent[0].ID == e.orders(1)[0].ID {
			t.Errorf("%d orders, or that of the other authority", len(sent))
		}
	})
}

func TestRecordOfAStoreThatFailedIsDeleted(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		store := e.storage()
		store.fail(func() error {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.records[aShop] = secret.Record{Content: []byte("it was stored all the same")}
			return errors.New("no answer")
		})
		e.subscribe(aShop)
		e.answer(aShop, secret.ErrUnknown)
		if store.has(aShop) {
			t.Error("the record of a refused name is left")
		}
	})
}

// An order that was refused is not sent again from its record: a new one is asked about and paid for.
func TestRefusedOrderIsNotTakenFromItsRecord(t *testing.T) {
	ask, limit := &asker{say: answers(true, nil)}, &budget{}
	limit.left.Store(3)
	bubble(t, func(e *engine, c *ondemand.Config) {
		stored(e, c)
		c.Rules[0].Budget, c.Rules[0].Ask = limit, ask
	}, func(e *engine) {
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		for range 5 * 600 {
			h := e.subscribe(aShop)
			after(200 * time.Millisecond)
			h.stop()
		}
		sent := e.orders(3)
		if sent[0].ID == sent[1].ID || sent[1].ID == sent[2].ID || ask.calls.Load() < 3 {
			t.Errorf("an order was sent again, or %d questions", ask.calls.Load())
		}
	})
}

func TestRefusedRenewalIsNotTakenFromItsRecord(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe(aShop)
		e.has(aShop)
		e.Close()
		after(19 * time.Hour)
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		e.start()
		e.orders(2)
		e.subscribe(aShop)
		e.has(aShop)
		after(15 * time.Minute)
		used := map[string]bool{}
		for _, r := range e.ca.Requests() {
			if used[r.ID] {
				t.Fatal("a refused order was sent again")
			}
			used[r.ID] = true
		}
		if len(used) < 3 {
			t.Errorf("%d orders", len(used))
		}
	})
}

func TestRefusedOrderIsNotSentAgainByARestart(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		h := e.subscribe(aShop)
		synctest.Wait()
		h.stop()
		sent := len(e.ca.Requests())
		e.restart()
		after(time.Hour)
		e.orders(sent)
	})
}
