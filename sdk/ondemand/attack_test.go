package ondemand_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// flood subscribes to 2,000 random names a second, each for as long as Envoy would.
func (e *engine) flood(ctx context.Context) {
	for ctx.Err() == nil {
		h := e.subscribe(fmt.Sprintf("r%d.shop.example.org", rand.Uint64()))
		if h.err == nil {
			go func() {
				for {
					time.Sleep(50 * time.Millisecond)
					if _, err := e.Peek(secret.Caller{}, h.name); !errors.Is(err, secret.ErrNotReady) {
						h.stop()
						return
					}
				}
			}()
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// reach returns how long a client takes that repeats its handshake after half a second, until it
// succeeds.
func (e *engine) reach(name string) time.Duration {
	e.t.Helper()
	began := time.Now()
	for time.Since(began) < time.Minute {
		if h := e.subscribe(name); h.err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			_, err := secret.Get(ctx, e.Set, secret.Caller{}, name)
			cancel()
			h.stop()
			if err == nil {
				return time.Since(began)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	e.t.Fatalf("%s is not served\n%+v", name, e.rule())
	return 0
}

func TestRandomNamesDelayNoHonestName(t *testing.T) {
	decider := &asker{say: func(_ context.Context, name string) (bool, error) {
		time.Sleep(5 * time.Millisecond)
		return name[0] != 'r', nil
	}}
	bubble(t, func(e *engine, c *ondemand.Config) {
		memory := ask.Remember(decider, ask.Limits{})
		e.t.Cleanup(memory.Close)
		c.Rules[0].Ask = memory
		c.Rules = append(c.Rules, ondemand.Rule{
			Name: "other", Patterns: patterns("**.other.example.org"), Certificate: secret.Spec{Authorities: []string{"test"}, TTL: ttl},
		})
	}, func(e *engine) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		e.subscribe("held.shop.example.org")
		after(time.Second)
		e.has("held.shop.example.org")
		asked := decider.calls.Load()
		go e.flood(ctx)
		time.Sleep(5 * time.Second)
		for i := range 4 {
			took := e.reach(fmt.Sprintf("honest%d.shop.example.org", i))
			if took > time.Second {
				t.Errorf("an honest new name took %s", took)
			}
			if took = e.reach(fmt.Sprintf("n%d.other.example.org", i)); took > 50*time.Millisecond {
				t.Errorf("a name of another rule took %s", took)
			}
			if _, err := e.Peek(secret.Caller{}, "held.shop.example.org"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		cancel()
		after(10 * time.Second)
		s := e.rule()
		if s.Names != 5 || s.Orders != 5 || s.Waiting != 0 || s.New != 0 {
			t.Errorf("%+v", s)
		}
		if calls := decider.calls.Load() - asked; calls > 20*50 {
			t.Errorf("%d questions in 20 s", calls)
		}
	})
}

func TestHangingAskKeepsHeldNames(t *testing.T) {
	decider := &asker{say: answers(true, nil)}
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Ask = decider }, func(e *engine) {
		for i := range 100 {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		e.orders(100)
		decider.set(func(ctx context.Context, _ string) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
		new := e.subscribe("new.shop.example.org")
		after(9 * time.Second)
		e.answer("new.shop.example.org", secret.ErrUnknown)
		new.stop()
		for range 7 * 24 {
			after(time.Hour)
			if s := e.rule(); s.Held != 100 || s.Expired != 0 {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func TestLyingAuthorityIsAskedLess(t *testing.T) {
	for name, lie := range map[string]func(*catest.Draft){"wrong key": catest.WrongKey, "expired": catest.Expired} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(e *engine) {
				e.ca.Always(catest.Fault{Break: lie})
				for range 600 {
					h := e.subscribe("a.shop.example.org")
					after(time.Second)
					if item, err := e.Peek(secret.Caller{}, "a.shop.example.org"); err == nil {
						t.Fatalf("%v is served", item)
					}
					h.stop()
				}
				if n := len(e.ca.Requests()); n > 15 {
					t.Errorf("%d orders in ten minutes", n)
				}
			})
		})
	}
}

func TestRateLimitedAuthority(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Always(catest.Fault{Err: &ca.Error{Reason: ca.RateLimited, RetryAfter: 5 * time.Minute, Message: "slow down"}})
		h := e.subscribe("a.shop.example.org")
		e.answer("a.shop.example.org", secret.ErrUnknown)
		h.stop()
		if again := e.subscribe("a.shop.example.org"); !errors.Is(again.err, secret.ErrUnknown) {
			t.Errorf("%v", again.err)
		}
		e.orders(1)
		e.ca.Always(catest.Fault{})
		e.Kick("test")
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
	})
}

func TestThousandsOfNamesRotate(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	const n = 1000
	bubble(t, func(_ *engine, c *ondemand.Config) { c.Rules[0].Queue = n }, func(e *engine) {
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			e.subscribe(fmt.Sprintf("n%d.shop.example.org", i))
		}
		synctest.Wait()
		if s := e.rule(); s.Held != n {
			t.Fatalf("%+v", s)
		}
		first := len(e.ca.Requests())
		if next := e.rule().Next; len(next) != 10 || next[0].Late || next[9].Ends.Before(next[0].Ends) || !next[0].Ends.Equal(e.rule().NextExpiry) {
			t.Errorf("%+v", next)
		}
		e.ca.delay.Store(int64(100 * time.Millisecond))
		after(18 * time.Hour)
		s := e.rule()
		if s.Held != n || s.Renewed < n || s.Expired != 0 || first != n {
			t.Errorf("%+v", s)
		}
		if most := e.ca.most.Load(); most > 16 {
			t.Errorf("%d orders at once", most)
		}
		runtime.GC()
		runtime.ReadMemStats(&now)
		if each := (int64(now.HeapAlloc) - int64(before.HeapAlloc)) / n; each > 10_000 {
			t.Errorf("%d bytes for each name", each)
		} else {
			t.Logf("%d bytes for each name", each)
		}
	})
}

// A storage that hangs keeps held names served, and Close ends.
func TestHangingStorage(t *testing.T) {
	bubble(t, stored, func(e *engine) {
		e.subscribe("a.shop.example.org")
		e.has("a.shop.example.org")
		release := make(chan struct{})
		e.storage().fail(func() error { <-release; return nil })
		e.subscribe("b.shop.example.org")
		after(10 * time.Second)
		e.answer("b.shop.example.org", secret.ErrUnknown)
		e.has("a.shop.example.org")
		began := time.Now()
		e.Close()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Close took %s", took)
		}
		close(release)
		e.answer("a.shop.example.org", secret.ErrClosed)
	})
}

func TestAdviceMovesRenewal(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.advises.Store(true)
		e.subscribe("a.shop.example.org")
		first := e.has("a.shop.example.org")
		after(4 * time.Hour)
		if e.has("a.shop.example.org").Fingerprint == first.Fingerprint {
			t.Error("it was not renewed as advised")
		}
	})
}
