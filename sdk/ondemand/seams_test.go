package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const aShop, bShop = "a.shop.example.org", "b.shop.example.org"

// listed is a file of names.
type listed struct {
	*names.Patterns
	t    *testing.T
	path string
}

func newListed(t *testing.T) *listed {
	var log logtest.Log
	l := &listed{t: t, path: filepath.Join(t.TempDir(), "names")}
	var err error
	l.Patterns, err = names.Open(names.Config{File: l.path, Poll: 10 * time.Millisecond, Log: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// write replaces the file and waits until it counts.
func (l *listed) write(all ...string) {
	l.t.Helper()
	next := l.path + ".next"
	if err := os.WriteFile(next, []byte("# names\n"+strings.Join(all, "\n")), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(next, l.path); err != nil {
		l.t.Fatal(err)
	}
	l.until(func() bool { return l.Len() == len(all) && l.Err() == nil })
}

func (l *listed) until(done func() bool) {
	l.t.Helper()
	for began := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			l.t.Fatal("it does not come")
		}
	}
}

func (e *engine) get(name string) *secret.Item {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	item, err := secret.Get(ctx, e.Set, secret.Caller{}, name)
	if err != nil {
		e.t.Fatal(err)
	}
	return item
}

// A file gives a name of a rule that was removed to another rule.
func TestNameMovesToTheRuleWhoseFileHasIt(t *testing.T) {
	e := newEngine(t, nil)
	held := e.get(aShop)
	list := newListed(t)
	list.write(bShop)
	next := shop()
	next.Name, next.Patterns = "listed", list.Patterns
	if err := e.Apply([]ondemand.Rule{next}); err != nil {
		t.Fatal(err)
	}
	list.write(aShop, bShop)
	if e.get(aShop) != held {
		t.Error("another certificate is served")
	}
	e.jump.Store(int64(16 * time.Hour))
	list.until(func() bool { return e.get(aShop) != held })
	if s := e.rule(); s.Name != "listed" || s.Names != 1 || s.Renewed != 1 {
		t.Errorf("%+v", s)
	}
}

func TestReloadWhileRecordsAreRead(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		for i := range 50 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		e.orders(50)
		e.restart()
		for i := range 50 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
			if err := e.Apply(e.config.Rules); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		e.orders(50)
	})
}

// damage damages the record of a name, whose renewal is due at the next start.
func (e *engine) damage(name string) {
	e.subscribe(name)
	e.has(name)
	e.Close()
	damaged := e.storage().records[name]
	damaged.Content = []byte("x")
	e.storage().records[name] = damaged
	after(19 * time.Hour)
}

func TestDamagedRecordMakesOneOrder(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.damage(aShop)
		e.ca.delay.Store(int64(20 * time.Second))
		e.start()
		e.subscribe(aShop)
		after(time.Minute)
		e.has(aShop)
		e.orders(2)
	})
}

func TestOrderInPlaceOfADamagedRecordIsStored(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.damage(aShop)
		e.ca.Always(catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: 2 * time.Second}})
		e.start()
		e.subscribe(aShop)
		after(20 * time.Second)
		if !e.storage().has(aShop) {
			t.Error("a kill would lose the order")
		}
		e.ca.Always(catest.Fault{})
		after(5 * time.Second)
		e.has(aShop)
		all := e.ca.Requests()[1:]
		for _, r := range all {
			if r.ID != all[0].ID {
				t.Error("another order was made")
			}
		}
	})
}

// A client that waits for a record does not wait for the renewal.
func TestFailedRenewalRefusesNoHeldName(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe(aShop)
		held := e.has(aShop)
		e.Close()
		after(19 * time.Hour)
		e.ca.delay.Store(int64(2 * time.Second))
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		e.start()
		after(500 * time.Millisecond)
		e.storage().fails(func() error { time.Sleep(3 * time.Second); return nil }, nil)
		e.subscribe(aShop)
		after(2 * time.Second)
		e.answer(aShop, secret.ErrNotReady)
		after(time.Second)
		if e.has(aShop).Fingerprint != held.Fingerprint {
			t.Error("another certificate is served")
		}
	})
}

func TestKickOfAnotherAuthorityEndsNoPause(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Always(catest.Fault{Err: &ca.Error{Reason: ca.RateLimited, RetryAfter: 5 * time.Minute, Message: "slow down"}})
		for range 10 {
			e.subscribe(aShop).stop()
			synctest.Wait()
			h := e.subscribe(aShop)
			synctest.Wait()
			h.stop()
			e.Kick("other")
		}
		e.orders(1)
	})
}

// A flood of names must not make each of them a search through all that are held.
func TestSearchForUnusedNamesIsNotRepeatedAtOnce(t *testing.T) {
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Names, c.Rules[0].Evict = 1, true }, func(e *engine) {
		h := e.subscribe(aShop)
		e.has(aShop)
		e.subscribe(bShop)
		h.stop()
		if again := e.subscribe(bShop); !errors.Is(again.err, secret.ErrUnknown) {
			t.Error("it was searched again at once")
		}
		after(time.Second)
		e.subscribe(bShop)
		e.has(bShop)
	})
}

func TestDeletionsAreBounded(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		const n = 500
		for i := range n {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		e.orders(n)
		e.Close()
		after(ttl + time.Hour)
		var now, most atomic.Int64
		e.storage().fails(nil, func() error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		})
		e.start()
		again := e.subscribe("n7.shop.example.org")
		after(6 * time.Second)
		e.has(again.name)
		after(26 * time.Hour)
		if m := most.Load(); m > 32 || m < 2 || len(e.storage().records) != 1 || !e.storage().has(again.name) {
			t.Errorf("%d at once, %d records are left", m, len(e.storage().records))
		}
	})
}

// A Delete that ignores its context must not remove what was stored after it.
func TestHangingDeleteIsAwaited(t *testing.T) {
	bubble(t, func(e *engine, c *ondemand.Config) {
		stored(e, c)
		c.Rules[0].Names, c.Rules[0].Evict = 1, true
	}, func(e *engine) {
		h := e.subscribe(aShop)
		e.has(aShop)
		h.stop()
		release := make(chan struct{})
		e.storage().fails(nil, func() error { <-release; return nil })
		after(2 * time.Second)
		h = e.subscribe(bShop)
		after(10 * time.Second)
		h.stop()
		sent := len(e.ca.Requests())
		e.subscribe(aShop)
		after(7 * time.Second)
		e.answer(aShop, secret.ErrUnknown)
		e.orders(sent)
		close(release)
		after(time.Second)
		e.subscribe(aShop)
		e.has(aShop)
		after(10 * time.Second)
		if !e.storage().has(aShop) {
			t.Error("its record is gone")
		}
	})
}

// An answer may come when the entry takes no advice any more.
func TestAdviceThatComesAfterAReload(t *testing.T) {
	other := ondemand.Rule{
		Name: "other", Patterns: patterns("**.other.example.org"), Certificate: secret.Spec{Authorities: []string{"other"}, TTL: ttl},
	}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules = append(c.Rules, other) }, func(e *engine) {
		e.subscribe("a.other.example.org")
		after(2 * time.Minute) // that authority gives no advice
		e.ca.adviceHangs.Store(true)
		e.subscribe(aShop)
		after(61 * time.Second)
		if err := e.Apply([]ondemand.Rule{other}); err != nil {
			t.Fatal(err)
		}
		e.Kick("")
		after(time.Hour)
		e.has(aShop)
	})
}

// The clock of a machine may be years behind until it is set.
func TestRecordOutlivesAClockThatIsBehind(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe(aShop)
		held := e.has(aShop)
		e.Close()
		e.jump.Store(int64(-1000 * time.Hour))
		e.start()
		e.subscribe(aShop).stop()
		e.subscribe(aShop)
		after(20 * time.Second)
		e.jump.Store(0)
		e.subscribe(aShop)
		after(5 * time.Second)
		if e.has(aShop).Fingerprint != held.Fingerprint {
			t.Error("it was ordered again")
		}
		e.orders(1)
	})
}
