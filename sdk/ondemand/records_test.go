package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// stored has certificates outlive a restart.
func stored(_ *engine, c *ondemand.Config) { c.Storage = newStorage() }

func (e *engine) storage() *storage { return e.config.Storage.(*storage) }

func TestHeldNameIsNotOrderedAgainAfterRestart(t *testing.T) {
	ask := &asker{say: answers(true, nil)}
	limit := &budget{}
	limit.left.Store(100)
	bubble(t, func(e *engine, c *ondemand.Config) {
		stored(e, c)
		c.Rules[0].Ask, c.Rules[0].Budget = ask, limit
	}, func(e *engine) {
		before := map[string]*secret.Item{}
		for i := range 100 {
			name := fmt.Sprintf("n%d.shop.example.org", i)
			e.subscribe(name)
			before[name] = e.has(name)
		}
		ask.set(answers(false, errors.New("away")))
		limit.left.Store(0)
		e.ca.hang.Store(true)
		e.restart()
		if s := e.rule(); s.Held != 100 || e.storage().loads != 0 {
			t.Errorf("%+v; %d records were read", s, e.storage().loads)
		}
		for name, item := range before {
			h := e.subscribe(name)
			if now := e.has(name); now.Fingerprint != item.Fingerprint || string(now.Key) != string(item.Key) || !now.RenewAt.Equal(item.RenewAt) || h.notices.Load() != 1 {
				t.Errorf("%v, want %v; %d notices", now, item, h.notices.Load())
			}
		}
		e.orders(100)
		if e.count(secret.Restored) != 100 {
			t.Errorf("events %v", e.events)
		}
	})
}

func TestCertificateOfLastRunIsRenewedInItsTime(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe("a.shop.example.org")
		first := e.has("a.shop.example.org")
		e.restart()
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
		after(time.Until(first.RenewAt) - time.Second)
		e.orders(1)
		after(2 * time.Second)
		if e.has("a.shop.example.org").Fingerprint == first.Fingerprint {
			t.Error("it was not renewed")
		}
		e.orders(2)
	})
}

// A kill at each step of an order: the storage keeps what was written before it.
func TestOrderIsResumedAfterKill(t *testing.T) {
	for name, at := range map[string]int{"before the order is stored": 0, "before the certificate is stored": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, stored, func(e *engine) {
				dead := errors.New("killed")
				writes := 0
				e.storage().fail(func() error {
					if writes++; writes > at {
						return dead
					}
					return nil
				})
				h := e.subscribe("a.shop.example.org")
				after(time.Second)
				h.stop()
				e.orders(at)
				e.storage().fail(nil)
				e.restart()
				after(time.Second)
				if at == 1 { // the order goes on by itself
					requests := e.orders(2)
					if requests[0].ID != requests[1].ID || string(requests[0].CSR) != string(requests[1].CSR) {
						t.Error("another order was made")
					}
				}
				e.subscribe("a.shop.example.org")
				e.has("a.shop.example.org")
				e.orders(at + 1)
				if !e.storage().has("a.shop.example.org") {
					t.Error("it is not stored")
				}
			})
		})
	}
}

func TestOrderThatCannotBeStoredIsNotSent(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe("held.shop.example.org")
		held := e.has("held.shop.example.org")
		e.storage().fail(func() error { return errors.New("no space left on device") })
		e.subscribe("a.shop.example.org")
		e.answer("a.shop.example.org", secret.ErrUnknown)
		e.orders(1)
		after(18 * time.Hour)
		if e.has("held.shop.example.org") == held || e.count(secret.StateFailed) == 0 {
			t.Errorf("a held name is not renewed; events %v", e.events)
		}
		e.storage().fail(nil)
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
	})
}

func TestRecordOfAnotherNameIsRefused(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe("a.shop.example.org")
		e.subscribe("b.shop.example.org")
		b := e.has("b.shop.example.org")
		store := e.storage()
		store.records["a.shop.example.org"] = store.records["b.shop.example.org"]
		e.restart()
		e.subscribe("a.shop.example.org")
		e.answer("a.shop.example.org", secret.ErrNotReady)
		after(5 * time.Second)
		if got := e.has("a.shop.example.org"); got.Fingerprint == b.Fingerprint || got.Identity.DNSNames[0] != "a.shop.example.org" {
			t.Errorf("%v is served", got)
		}
		e.orders(3)
	})
}

func TestRecordsOfOtherRulesStay(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe("a.shop.example.org")
		item := e.has("a.shop.example.org")
		rules := e.config.Rules
		e.config.Rules = nil
		e.restart()
		if h := e.subscribe("a.shop.example.org"); !errors.Is(h.err, secret.ErrUnknown) {
			t.Errorf("%v", h.err)
		}
		if err := e.Apply(rules); err != nil {
			t.Fatal(err)
		}
		e.subscribe("a.shop.example.org")
		if e.has("a.shop.example.org").Fingerprint != item.Fingerprint {
			t.Error("it was ordered again")
		}
		after(ttl)
		e.restart()
		if len(e.storage().records) > 1 {
			t.Errorf("%v", maps.Keys(e.storage().records))
		}
	})
}

func TestReloadOfRules(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.delay.Store(int64(time.Second))
		h := e.subscribe("a.shop.example.org")
		flying := e.subscribe("b.shop.example.org")
		after(500 * time.Millisecond)
		changed := shop()
		changed.InFlight = 3
		if err := e.Apply([]ondemand.Rule{changed}); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		item := e.has("a.shop.example.org")
		e.has("b.shop.example.org")
		flying.stop()
		e.orders(2)
		if err := e.Apply([]ondemand.Rule{{Name: "bad"}}); err == nil {
			t.Error("a bad rule is taken")
		}
		if err := e.Apply(nil); err != nil {
			t.Fatal(err)
		}
		if again := e.subscribe("a.shop.example.org"); !errors.Is(again.err, secret.ErrUnknown) {
			t.Errorf("a new subscriber gets %v", again.err)
		}
		if e.has("a.shop.example.org") != item || !e.Status().Rules[0].Removed || e.rule().Held != 2 {
			t.Errorf("%+v", e.Status())
		}
		after(item.NotAfter.Sub(e.now()) + time.Minute)
		e.answer("a.shop.example.org", secret.ErrUnknown)
		h.stop()
		after(time.Minute)
		e.orders(2)
		if err := e.Apply([]ondemand.Rule{shop()}); err != nil || len(e.Status().Rules) != 1 {
			t.Errorf("%v, %+v", err, e.Status())
		}
		e.subscribe("a.shop.example.org")
		after(time.Second)
		e.has("a.shop.example.org")
	})
}

func TestHangingAuthorityDelaysItsOwnRuleAlone(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) {
		c.Rules = append(c.Rules, ondemand.Rule{
			Name: "other", Patterns: patterns("**.other.example.org"), Certificate: secret.Spec{Authorities: []string{"other"}, TTL: ttl},
		})
	}, func(e *engine) {
		e.ca.hang.Store(true)
		for i := range 2000 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		e.subscribe("a.b.other.example.org")
		e.has("a.b.other.example.org")
		if most := e.ca.most.Load(); most > 16 {
			t.Errorf("%d orders at once", most)
		}
		if s := e.rule(); s.Refused[ondemand.Full] < 900 {
			t.Errorf("%+v", s)
		}
		e.ca.hang.Store(false)
		after(2 * time.Minute)
		if s := e.rule(); s.Names > 1100 || s.InFlight != 0 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A kill in the middle of a renewal: what is held is served, and the same order goes on.
func TestRenewalIsResumedAfterKill(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe("a.shop.example.org")
		held := e.has("a.shop.example.org")
		e.ca.hang.Store(true)
		after(time.Until(held.RenewAt) + time.Second)
		e.restart()
		e.ca.hang.Store(false)
		e.subscribe("a.shop.example.org")
		after(time.Minute)
		if e.has("a.shop.example.org").Fingerprint == held.Fingerprint {
			t.Error("it was not renewed")
		}
		requests := e.orders(2) // the one that hung never reached the CA
		if requests[1].ID == requests[0].ID {
			t.Error("the renewal has the order of the first certificate")
		}
		if sent := e.ca.hung.Load(); sent == nil || sent.ID != requests[1].ID || string(sent.CSR) != string(requests[1].CSR) {
			t.Error("another order was made")
		}
	})
}

// slowStorage takes a second for each record.
type slowStorage struct{ *storage }

func (s slowStorage) Load(ctx context.Context, name string) (secret.Record, error) {
	time.Sleep(time.Second)
	return s.storage.Load(ctx, name)
}

func slow(_ *engine, c *ondemand.Config) { c.Storage = slowStorage{newStorage()} }

// After a restart, a proxy subscribes to all its names again at once. To refuse one whose record has
// not been read yet would take a valid certificate from it.
func TestHeldNameIsNotRefusedWhileRecordsAreRead(t *testing.T) {
	bubble(t, slow, func(e *engine) {
		name := func(i int) string { return fmt.Sprintf("n%d.shop.example.org", i) }
		const n = 80 // four at a time: 20 s
		for i := range n {
			e.subscribe(name(i))
		}
		after(time.Second)
		e.restart()
		for i := range n {
			e.subscribe(name(i))
		}
		after(21 * time.Second)
		for i := range n {
			e.has(name(i))
		}
		e.refused(map[ondemand.Refusal]uint64{})
		e.orders(n)
	})
}
