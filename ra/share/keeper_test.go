package share

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/internal/test/logtest"
)

// store is one record in memory, which takes a while to answer.
type store struct {
	mu      sync.Mutex
	record  []byte
	version int
	away    bool // requests fail
	hangs   bool // they get no answer
	writes  int
}

const latency = 20 * time.Millisecond

func (s *store) ask(ctx context.Context) error {
	time.Sleep(latency)
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	away, hangs := s.away, s.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if away {
		return errors.New("connection refused")
	}
	return nil
}

func (s *store) Load(ctx context.Context) ([]byte, string, error) {
	if err := s.ask(ctx); err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return nil, "", nil
	}
	return s.record, fmt.Sprint(s.version), nil
}

func (s *store) Save(ctx context.Context, record []byte, version string) error {
	if err := s.ask(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if has := fmt.Sprint(s.version); s.record != nil && version != has || s.record == nil && version != "" {
		return fmt.Errorf("the version is %s: %w", has, ErrConflict)
	}
	s.record, s.version, s.writes = record, s.version+1, s.writes+1
	return nil
}

func (s *store) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *store) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *store) put(text string) { s.set(func() { s.record, s.version = []byte(text), s.version+1 }) }

func (s *store) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.record)
}

// replica is a Keeper that runs.
type replica struct {
	*Keeper
	log  logtest.Log
	stop func()

	mu      sync.Mutex
	want    float64
	changes int
}

func (s *store) replica(t *testing.T, want float64) *replica {
	t.Helper()
	r := &replica{want: want}
	var err error
	r.Keeper, err = New(Config{Store: s, Log: r.log.Logger(), Wants: r.wants, Changed: r.changed})
	if err != nil {
		t.Fatal(err)
	}
	r.stop = background.Run(r.Run)
	t.Cleanup(r.stop)
	return r
}

func (r *replica) wants() map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return map[string]float64{pool: r.want}
}

func (r *replica) changed(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
}

// within waits until all hold, and looks each tenth of a second that they have no more than all.
func within(t *testing.T, most time.Duration, what string, all []*replica, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !holds(); time.Sleep(100 * time.Millisecond) {
		sum := 0.0
		for _, r := range all {
			sum += r.Share(pool)
		}
		if sum > 1.00001 {
			t.Fatalf("they have %v of 1", sum)
		}
		if time.Now().After(end) {
			var has []float64
			for _, r := range all {
				has = append(has, r.Share(pool))
			}
			t.Fatalf("not within %s: %s; they have %v", most, what, has)
		}
	}
}

func about(r *replica, share float64) func() bool {
	return func() bool { got := r.Share(pool); return got > share-0.03 && got < share+0.03 }
}

func TestKeepersShareByDemandOverFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := s.replica(t, 1)
		within(t, 20*time.Second, "the first has it all", []*replica{a}, about(a, 0.97))
		b := s.replica(t, 1)
		all := []*replica{a, b}
		within(t, 8*time.Second, "two have half each", all, func() bool { return about(a, 0.485)() && about(b, 0.485)() })
		b.mu.Lock()
		b.want = 0.1
		b.mu.Unlock()
		within(t, 8*time.Second, "one has what the other does not want", all, func() bool { return about(a, 0.87)() && about(b, 0.1)() })
		b.stop()
		if got := b.Share(pool); got != 0 {
			t.Errorf("one that has ended has %v", got)
		}
		within(t, 3*time.Second, "it has given back", all, about(a, 0.97))
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.changes == 0 {
			t.Error("it does not hear of its share")
		}
		if n := len(a.log.String()); n > 0 {
			t.Errorf("it logged %s", a.log.String())
		}
	})
}

// An idle program costs etcd no more than it has to, and no share lapses meanwhile.
func TestIdleMembersWriteSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		var keepers []*Keeper
		for range 2 {
			keeper, err := New(Config{Store: s, Wants: func() map[string]float64 { return map[string]float64{"ca": 0} }})
			if err != nil {
				t.Fatal(err)
			}
			defer background.Run(keeper.Run)()
			keepers = append(keepers, keeper)
		}
		time.Sleep(2 * time.Hour) // all floors are settled
		before := s.written()
		for range 10 * 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			for i, k := range keepers {
				if k.Share("ca") == 0 {
					t.Fatalf("member %d has no share", i)
				}
			}
		}
		if perMinute := float64(s.written()-before) / 10; perMinute > 2*12 || perMinute < 2*8 {
			t.Errorf("%v writes a minute", perMinute)
		}
	})
}

// Whenever it begins, as between two writes of an idle member.
func TestOutageOfFiveSecondsEndsNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := s.replica(t, 1)
		within(t, 20*time.Second, "it has it all", []*replica{a}, about(a, 0.97))
		for n := range 60 {
			time.Sleep(time.Minute + time.Duration(n)*100*time.Millisecond)
			s.set(func() { s.away = true })
			for tenth := range 150 {
				if tenth == 50 {
					s.set(func() { s.away = false })
				}
				if got := a.Share(pool); got < 0.9 {
					t.Fatalf("%d tenths of a second after the store went away it has %v", tenth, got)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
}

func TestStoreThatIsAwayOrHangsEndsTheShare(t *testing.T) {
	for what, set := range map[string]func(*store, bool){
		"away": func(s *store, on bool) { s.away = on }, "hangs": func(s *store, on bool) { s.hangs = on },
		"damaged": func(s *store, on bool) {
			if s.record = []byte("{"); !on {
				s.record = nil
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				a := s.replica(t, 1)
				all := []*replica{a}
				within(t, 20*time.Second, "it has it all", all, about(a, 0.97))
				s.set(func() { set(s, true) })
				time.Sleep(9 * time.Second)
				if got := a.Share(pool); got < 0.9 {
					t.Errorf("nine seconds later it has %v", got)
				}
				within(t, 4*time.Second, "it has nothing", all, func() bool { return a.Share(pool) < 0.02 })
				if !strings.Contains(a.log.String(), "cannot share") || a.Status().Fault == "" {
					t.Errorf("it logged %q, and its status says %q", a.log.String(), a.Status().Fault)
				}
				s.set(func() { set(s, false) })
				within(t, 25*time.Second, "it has it again", all, about(a, 0.97))
				if !strings.Contains(a.log.String(), "again") || a.Status().Fault != "" {
					t.Errorf("it logged %q, and its status says %q", a.log.String(), a.Status().Fault)
				}
			})
		})
	}
}

// A replica that wrote an empty record at its end stopped all others for good.
func TestReplicaThatTheRecordDoesNotNameWritesNothingAtItsEnd(t *testing.T) {
	for what, ends := range map[string]func(*store, *replica){
		"before its first beat":     func(_ *store, r *replica) { r.stop() },
		"after its record was lost": func(s *store, r *replica) { time.Sleep(20 * time.Second); s.set(func() { s.record = nil }); r.stop() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				ends(s, s.replica(t, 1))
				if got := s.text(); got != "" {
					t.Errorf("it wrote %s", got)
				}
				b := s.replica(t, 1)
				within(t, 20*time.Second, "the next has it all", []*replica{b}, about(b, 0.97))
			})
		})
	}
}

func TestRecordOfNoUseIsReplacedAfterADuration(t *testing.T) {
	for what, text := range map[string]string{
		"of a replica that left": `{"generation":"","members":{}}`, "no JSON": "{", "a text": `"x"`, "a version of text": `{"version":"9","generation":"a"}`,
		"more than all": `{"version":1,"generation":"a","members":{"x":{"pools":{"ca":{"share":10001}}}}}`, "large": strings.Repeat("x", maxRecord+1),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				a, b := s.replica(t, 1), s.replica(t, 1)
				all := []*replica{a, b}
				within(t, 30*time.Second, "half each", all, func() bool { return about(a, 0.485)() && about(b, 0.485)() })
				s.put(text)
				for end := time.Now().Add(14 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					if sum := a.Share(pool) + b.Share(pool); sum > 1 {
						t.Fatalf("they have %v of 1", sum)
					}
				}
				if got := s.text(); got != text || !strings.Contains(a.Status().Fault, "is replaced after 15s") {
					t.Errorf("14 seconds later it is %.200s; the fault is %q", got, a.Status().Fault)
				}
				within(t, 30*time.Second, "half each again", all, func() bool { return about(a, 0.485)() && about(b, 0.485)() })
				if r, err := parse([]byte(s.text())); err != nil || r.Version != 1 {
					t.Errorf("the new record is %s: %v", s.text(), err)
				}
			})
		})
	}
}

func TestNewerRecordIsLeftAloneAndSharesAreKept(t *testing.T) {
	for _, text := range []string{`{"version":2,"members":["another form"]}`, `{"version":1.5}`} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{}
			a, b, late := s.replica(t, 1), s.replica(t, 1), s.replica(t, 1)
			late.stop()
			all := []*replica{a, b}
			within(t, time.Minute, "half each", all, func() bool { return about(a, 0.485)() && about(b, 0.485)() })
			s.put(text)
			c := s.replica(t, 1)
			all = append(all, c)
			end := time.Now().Add(2 * time.Hour)
			within(t, 3*time.Hour, "two hours have passed", all, func() bool { return time.Now().After(end) })
			if !about(a, 0.485)() || !about(b, 0.485)() || c.Share(pool) > 0 || s.text() != text {
				t.Errorf("they have %v, %v and %v; the record is %s", a.Share(pool), b.Share(pool), c.Share(pool), s.text())
			}
			if fault := a.Status().Fault; !strings.Contains(fault, "newer version") || !strings.Contains(a.log.String(), "newer version") {
				t.Errorf("the fault is %q, the log %s", fault, a.log.String())
			}
			b.stop()
			if s.text() != text {
				t.Errorf("one that ends writes %s", s.text())
			}
			s.set(func() { s.record = nil })
			within(t, time.Minute, "the others share again", all, func() bool { return about(a, 0.485)() && about(c, 0.485)() })
		})
	}
}

// Others may have the share of a member that could not be reached.
func TestNewerRecordRevivesNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		a := s.replica(t, 1)
		within(t, 20*time.Second, "it has it all", []*replica{a}, about(a, 0.97))
		s.set(func() { s.away = true })
		time.Sleep(20 * time.Second)
		s.put(`{"version":2}`)
		s.set(func() { s.away = false })
		time.Sleep(time.Minute)
		if got := a.Share(pool); got > 0.01 {
			t.Errorf("it has %v", got)
		}
	})
}

// Many that write at once all get through.
func TestManyMembersWriteOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		var all []*replica
		for range 8 {
			all = append(all, s.replica(t, 1))
		}
		within(t, 2*time.Minute, "each has an eighth", all, func() bool {
			for _, r := range all {
				if !about(r, 0.97/8)() {
					return false
				}
			}
			return true
		})
		begun := s.written()
		time.Sleep(time.Minute)
		if n := s.written() - begun; n < 8*9 || n > 10*12*5/4 {
			t.Errorf("%d writes in a minute", n)
		}
	})
}

func TestInvalidSettingsAreRefused(t *testing.T) {
	wants := func() map[string]float64 { return nil }
	for what, cfg := range map[string]Config{
		"no store": {Wants: wants}, "no wants": {Store: &store{}}, "a short duration": {Store: &store{}, Wants: wants, Duration: time.Second},
		"a long duration": {Store: &store{}, Wants: wants, Duration: time.Hour},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
