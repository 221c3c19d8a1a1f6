package ask_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/ondemand/ask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decider allows the names that begin with "yes", refuses those with "no" and has no answer for others.
type decider struct {
	latency time.Duration
	mu      sync.Mutex
	asked   []string
	at      []time.Time
	most    int
	now     int
}

func (d *decider) Allowed(ctx context.Context, name string) (bool, error) {
	d.mu.Lock()
	d.asked = append(d.asked, name)
	d.at = append(d.at, time.Now())
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	defer func() { d.mu.Lock(); d.now--; d.mu.Unlock() }()
	select {
	case <-time.After(d.latency):
	case <-ctx.Done():
		return false, ctx.Err()
	}
	switch {
	case strings.HasPrefix(name, "yes"):
		return true, nil
	case strings.HasPrefix(name, "no"):
		return false, nil
	}
	return true, errors.New("away") // true counts for nothing beside an error
}

func (d *decider) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.asked)
}

// mostAtOnce returns how many calls ran together at the most.
func (d *decider) mostAtOnce() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

func TestAnswerIsRememberedForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{latency: 10 * time.Millisecond}
		m := ask.Remember(d, ask.Limits{})
		defer m.Close()
		check := func(name string, want bool, fails bool, calls int) {
			t.Helper()
			if got, err := m.Allowed(t.Context(), name); got != want || (err != nil) != fails || d.count() != calls {
				t.Errorf("%s: %v, %v after %d calls; want %v, %d calls", name, got, err, d.count(), want, calls)
			}
		}
		if _, known := m.Recall("no.example.org"); known {
			t.Error("an answer is known at the start")
		}
		check("no.example.org", false, false, 1)
		check("no.example.org", false, false, 1)
		check("yes.example.org", true, false, 2)
		check("yes.example.org", true, false, 2)
		check("other.example.org", false, true, 3)
		check("other.example.org", false, true, 4)
		for name, want := range map[string]bool{"no.example.org": false, "yes.example.org": true} {
			if got, known := m.Recall(name); got != want || !known {
				t.Errorf("%s: %v, %v", name, got, known)
			}
		}
		if _, known := m.Recall("other.example.org"); known {
			t.Error("an error was remembered")
		}
		time.Sleep(2*time.Minute + time.Second)
		check("no.example.org", false, false, 5)
		check("yes.example.org", true, false, 5)
		time.Sleep(3 * time.Minute)
		check("yes.example.org", true, false, 6)
		if c := m.Counts(); c.Calls != 6 || c.Failed != 2 || c.Remembered != 3 || c.Busy != 0 || c.Waiting != 0 {
			t.Errorf("counts %+v", c)
		}
	})
}

func TestChangedAnswerReplacesRememberedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var allow atomic.Bool
		m := ask.Remember(deciderFunc(func(context.Context, string) (bool, error) { return allow.Load(), nil }), ask.Limits{Yes: time.Hour, No: time.Minute})
		defer m.Close()
		for range 3 {
			for _, want := range []bool{false, true} {
				allow.Store(want)
				if got, err := m.Allowed(t.Context(), "a.example.org"); got != want || err != nil {
					t.Errorf("%v, %v; want %v", got, err, want)
				}
				time.Sleep(2 * time.Hour)
			}
		}
	})
}

type deciderFunc func(ctx context.Context, name string) (bool, error)

func (f deciderFunc) Allowed(ctx context.Context, name string) (bool, error) { return f(ctx, name) }

func TestManyHandshakesForOneNameMakeOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{latency: time.Second}
		m := ask.Remember(d, ask.Limits{})
		defer m.Close()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got, err := m.Allowed(t.Context(), "yes.example.org"); !got || err != nil {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		all.Wait()
		if d.count() != 1 {
			t.Errorf("%d calls", d.count())
		}
	})
}

func TestHangingDeciderCostsBoundedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{latency: time.Hour}
		m := ask.Remember(d, ask.Limits{Calls: 3, Timeout: 5 * time.Second})
		defer m.Close()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				if got, err := m.Allowed(ctx, fmt.Sprintf("yes%d.example.org", i)); got || err == nil {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		all.Wait()
		m.Close()
		if d.mostAtOnce() != 3 || d.count() > 6 {
			t.Errorf("%d calls, %d at once", d.count(), d.mostAtOnce())
		}
		if c := m.Counts(); c.Waiting != 0 {
			t.Errorf("%d wait", c.Waiting)
		}
	})
}

func TestAnswerAfterItsCallerLeftIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{latency: time.Second}
		m := ask.Remember(d, ask.Limits{})
		defer m.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if got, err := m.Allowed(ctx, "yes.example.org"); got || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", got, err)
		}
		time.Sleep(2 * time.Second)
		if got, known := m.Recall("yes.example.org"); !got || !known {
			t.Errorf("%v, %v", got, known)
		}
	})
}

func TestClosedMemoryAnswersFromMemoryOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{}
		m := ask.Remember(d, ask.Limits{Calls: 1})
		if got, err := m.Allowed(t.Context(), "yes.example.org"); !got || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		d.latency = time.Hour
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if got, err := m.Allowed(t.Context(), fmt.Sprintf("yes%d.example.org", i)); got || err == nil {
					t.Errorf("%v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		m.Close()
		m.Close()
		all.Wait()
		if got, err := m.Allowed(t.Context(), "yes.example.org"); !got || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := m.Allowed(t.Context(), "yes-new.example.org"); err == nil {
			t.Error("a closed memory asks")
		}
	})
}

// flood asks for random names for a while, each for as long as a handshake waits.
func flood(t *testing.T, m *ask.Memory, perSecond int, name func() string, until time.Time) (wait func()) {
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(until) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				if got, _ := m.Allowed(ctx, name()); got {
					t.Error("a random name is allowed")
				}
			})
			time.Sleep(time.Second / time.Duration(perSecond))
		}
	})
	return all.Wait
}

func random(under string) func() string {
	return func() string { return fmt.Sprintf("no%x.%s", rand.Uint64(), under) }
}

func TestFloodOfRandomNamesMakesBoundedCallsAndHonestNamesAreDecided(t *testing.T) {
	for title, c := range map[string]struct {
		names  func() string
		honest string
		tries  int // of the client, half a second each
	}{
		"another registered domain": {random("shop.example.org"), "yes.example.com", 1},
		"the same domain":           {random("shop.example.org"), "yes.shop.example.org", 2},
		"random domains":            {func() string { return fmt.Sprintf("no%x.com", rand.Uint64()) }, "yes.example.com", 2},
		"labels before a known one": {random("www.a.shop.example.org"), "yes.b.shop.example.org", 2},
	} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &decider{latency: 20 * time.Millisecond}
				m := ask.Remember(d, ask.Limits{})
				defer m.Close()
				end := time.Now().Add(8 * time.Second)
				wait := flood(t, m, 2000, c.names, end)
				for i := range 5 {
					time.Sleep(time.Second)
					name := strings.Replace(c.honest, "yes", fmt.Sprintf("yes%d", i), 1)
					if !handshake(t, m, name, c.tries) {
						t.Errorf("%s was not decided", name)
					}
				}
				wait()
				d.checkRate(t, 50)
				if c := m.Counts(); c.Waiting != 0 || c.Busy < 10_000 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// handshake asks for a name as a client that tries again after half a second.
func handshake(t *testing.T, m *ask.Memory, name string, tries int) (allowed bool) {
	for range tries {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		began := time.Now()
		allowed, _ = m.Allowed(ctx, name)
		cancel()
		if allowed {
			return true
		}
		time.Sleep(time.Second/2 - time.Since(began))
	}
	return false
}

// checkRate checks the calls in each second.
func (d *decider) checkRate(t *testing.T, most int) {
	t.Helper()
	d.mu.Lock() // calls may go on
	defer d.mu.Unlock()
	for first, last := 0, 0; last < len(d.at); last++ {
		for d.at[last].Sub(d.at[first]) >= time.Second {
			first++
		}
		if n := last - first + 1; n > most {
			t.Fatalf("%d calls in a second", n)
		}
	}
}

// A call that failed once, as the decider was restarted, does not keep a name out for the rest of a flood.
func TestNameThatWasAskedInVainGetsATurnInAFlood(t *testing.T) {
	for title, names := range map[string]func() string{"the same domain": random("shop.example.org"), "another": random("example.com")} {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const name = "yes.shop.example.org"
				var down atomic.Bool
				d := &decider{latency: 20 * time.Millisecond}
				m := ask.Remember(deciderFunc(func(ctx context.Context, name string) (bool, error) {
					if down.Load() {
						return false, errors.New("restarted")
					}
					return d.Allowed(ctx, name)
				}), ask.Limits{})
				defer m.Close()
				down.Store(true)
				if _, err := m.Allowed(t.Context(), name); err == nil {
					t.Fatal("the decider is away")
				}
				down.Store(false)
				wait := flood(t, m, 2000, names, time.Now().Add(6*time.Second))
				time.Sleep(time.Second)
				if !handshake(t, m, name, 4) {
					t.Errorf("the name was not decided within 2 s: %+v", m.Counts())
				}
				wait()
			})
		})
	}
}

// A client that repeats its own names does not take all turns.
func TestFloodOfRepeatedNamesLeavesTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{latency: 20 * time.Millisecond}
		m := ask.Remember(d, ask.Limits{Answers: 100})
		defer m.Close()
		var all sync.WaitGroup
		for i := range 900 {
			for range 2 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
					defer cancel()
					_, _ = m.Allowed(ctx, fmt.Sprintf("no%d.shop.example.org", i))
				})
			}
		}
		time.Sleep(3 * time.Second)
		if !handshake(t, m, "yes.example.com", 1) {
			t.Error("an honest name was not decided")
		}
		all.Wait()
		d.checkRate(t, 50)
	})
}

func TestEvictionDoesNotRaiseRateOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &decider{}
		m := ask.Remember(d, ask.Limits{Answers: 2, Waiting: 10})
		defer m.Close()
		var all sync.WaitGroup
		for i := range 20_000 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := m.Allowed(ctx, fmt.Sprintf("no%d.example.org", i%100))
				if busy := errors.Is(err, ask.ErrBusy); err != nil && !busy && !errors.Is(err, context.DeadlineExceeded) || busy && ca.ReasonFor(err) != ca.RateLimited {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		d.checkRate(t, 50)
	})
}

func TestRememberedRefusalsTakeBoundedMemory(t *testing.T) {
	no := deciderFunc(func(context.Context, string) (bool, error) { return false, nil })
	m := ask.Remember(no, ask.Limits{PerSecond: 1e9, Burst: 1e9})
	defer m.Close()
	before := heap()
	for i := range 200_000 {
		if _, err := m.Allowed(t.Context(), fmt.Sprintf("no%d.a-name-of-common-length.example.org", i)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 20<<20 {
		t.Errorf("the memory grew by %d bytes", grown)
	} else {
		t.Logf("200,000 refusals were asked for, %d bytes are held", grown)
	}
	for i := 100_000; i < 200_000; i++ {
		if allowed, known := m.Recall(fmt.Sprintf("no%d.a-name-of-common-length.example.org", i)); allowed || !known {
			t.Fatalf("refusal %d of 200,000 is forgotten", i)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkRememberedRefusal(b *testing.B) {
	m := ask.Remember(&decider{}, ask.Limits{})
	defer m.Close()
	if _, err := m.Allowed(b.Context(), "no.shop.example.org"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if allowed, err := m.Allowed(b.Context(), "no.shop.example.org"); allowed || err != nil {
			b.Fatal(err)
		}
	}
}
