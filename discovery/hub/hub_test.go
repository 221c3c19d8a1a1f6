package hub

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ear records when it was notified, from the moment it was made.
type ear struct {
	since time.Time

	mu   sync.Mutex
	told []time.Duration
}

func newEar() *ear { return &ear{since: time.Now()} }

func (e *ear) notify() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, time.Since(e.since))
}

func (e *ear) heard() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.told)
}

// inBubble runs the test on a hub with the defaults, in a bubble with a clock of its own.
func inBubble(t *testing.T, test func(t *testing.T, h *Hub[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := New[string](Config{})
		defer h.Close()
		test(t, h)
	})
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOnlyWatchersAreNotified(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		foo, other := newEar(), newEar()
		defer h.Watch("foo", foo.notify)()
		defer h.Watch("bar", other.notify)()
		h.Changed("foo", "nobody's")
		pass(time.Minute)
		if got := foo.heard(); !slices.Equal(got, []time.Duration{10 * time.Millisecond}) || len(other.heard()) != 0 {
			t.Errorf("notified %v and %v", got, other.heard())
		}
		h.Changed("bar")
		pass(time.Minute)
		if len(foo.heard()) != 1 || len(other.heard()) != 1 {
			t.Errorf("after a change of the other they were notified at %v and %v", foo.heard(), other.heard())
		}
	})
}

func TestBurstIsNotifiedOnceAndEndlessBurstToo(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		e := newEar()
		defer h.Watch("foo", e.notify)()
		for range 3 {
			h.Changed("foo")
			pass(9 * time.Millisecond)
		}
		pass(time.Second)
		if got := e.heard(); !slices.Equal(got, []time.Duration{28 * time.Millisecond}) {
			t.Errorf("a burst is announced at %v", got)
		}
		begin := time.Since(e.since)
		for range 25 {
			h.Changed("foo")
			pass(5 * time.Millisecond)
		}
		if got := e.heard(); len(got) != 2 || got[1]-begin != 100*time.Millisecond {
			t.Errorf("a long burst that began at %v is announced at %v", begin, got)
		}
	})
}

// A stream that is notified of a listener before its cluster would send them in that order.
func TestOrderedHubNotifiesInOrderOfKeys(t *testing.T) {
	keys := strings.Split("abcdefgh", "")
	synctest.Test(t, func(t *testing.T) {
		h := NewOrdered(Config{}, strings.Compare)
		defer h.Close()
		var heard []string
		for _, key := range keys {
			defer h.Watch(key, func() { heard = append(heard, key) })()
		}
		defer h.WatchAny([]string{"h", "b"}, func() { heard = append(heard, "b or h") })()
		h.Changed("h", "c")
		h.Changed(keys...)
		pass(time.Second)
		at := slices.Index(heard, "b or h")
		if heard = slices.Delete(heard, at, at+1); at < 1 || at > 2 || !slices.Equal(heard, keys) {
			t.Errorf("notified %v, the one with two keys at %d", heard, at)
		}
	})
}

func TestUnwatchedKeysDelayNoWatcher(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		e := newEar()
		defer h.Watch("foo", e.notify)()
		h.Changed("foo")
		for range 10 {
			pass(4 * time.Millisecond)
			h.Changed("nobody's")
		}
		if got := e.heard(); !slices.Equal(got, []time.Duration{10 * time.Millisecond}) {
			t.Errorf("notified at %v", got)
		}
	})
}

func TestBurstOverSeveralKeysIsNotifiedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		e := newEar()
		stop := h.WatchAny([]string{"foo", "foo-cacert"}, e.notify)
		h.Changed("foo")
		h.Changed("foo-cacert")
		pass(time.Second)
		h.Changed("foo-cacert")
		pass(time.Second)
		if got := e.heard(); len(got) != 2 {
			t.Errorf("notified at %v", got)
		}
		if !h.Watched("foo") || !h.Watched("foo-cacert") || h.Watched("bar") {
			t.Error("the hub does not know what is watched")
		}
		stop()
		stop()
		if h.Watched("foo") || h.Watched("foo-cacert") {
			t.Error("something is watched that was left")
		}
		if len(h.watches) > 0 {
			t.Errorf("%d keys without a watcher are kept", len(h.watches))
		}
	})
}

func TestStoppedWatcherIsNotNotified(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		var ears [2]*ear
		var stops [2]func()
		for i := range ears {
			ears[i] = newEar()
		}
		// Each makes the other leave: the first to be notified is the only one.
		for i := range ears {
			stops[i] = h.Watch("foo", func() { ears[i].notify(); stops[1-i]() })
		}
		h.Changed("foo")
		pass(time.Second)
		if n := len(ears[0].heard()) + len(ears[1].heard()); n != 1 {
			t.Errorf("%d were notified", n)
		}
		stops[0]()
		stops[1]()
		h.Changed("foo")
		h.All()
		pass(time.Second)
		if n := len(ears[0].heard()) + len(ears[1].heard()); n != 1 {
			t.Errorf("%d were notified after they had left", n-1)
		}
	})
}

func TestLargeNotificationsAreSpread(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		mine, other := newEar(), newEar()
		const watchers = 9*batch + 1 // in ten parts, the last of one
		for range watchers {
			defer h.Watch("east", mine.notify)()
		}
		defer h.Watch("west", other.notify)()
		h.Spread("east")
		pass(0)
		if n := len(mine.heard()); n != batch {
			t.Errorf("%d are notified at once", n)
		}
		pass(2 * time.Second)
		got := mine.heard()
		if len(got) != watchers || got[len(got)-1] != 900*time.Millisecond || len(other.heard()) != 0 {
			t.Errorf("%d are notified, the last at %v; %d others", len(got), got[len(got)-1], len(other.heard()))
		}
		h.All()
		pass(2 * time.Second)
		if len(mine.heard()) != 2*watchers || len(other.heard()) != 1 {
			t.Errorf("all: %d and %d are notified", len(mine.heard()), len(other.heard()))
		}
	})
}

// Events may come faster than they are spread: no watcher may wait for ever.
func TestLateWatcherKeepsItsPlaceInQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		ears := make([]*ear, 20*batch)
		for i := range ears {
			ears[i] = newEar()
			defer h.Watch("east", ears[i].notify)()
		}
		for range 30 {
			h.All()
			pass(100 * time.Millisecond)
		}
		for i, e := range ears {
			if len(e.heard()) == 0 {
				t.Fatalf("%d was not told in 3 s", i)
			}
		}
		if n := len(h.late); n > len(ears) {
			t.Errorf("%d are in the queue", n)
		}
	})
}

func TestSecondEventDoesNotHurryFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		e := newEar()
		for range 10 * batch {
			defer h.Watch("east", e.notify)()
		}
		h.All()
		pass(0)
		h.All()
		pass(0)
		if n := len(e.heard()); n != batch {
			t.Errorf("%d are notified at once", n)
		}
		pass(2 * time.Second)
		if n := len(e.heard()); n != 11*batch {
			t.Errorf("%d are notified, want all and those twice who were notified before the second event", n)
		}
	})
}

func TestConfiguredTimesAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New[string](Config{Quiet: time.Second, Longest: 3 * time.Second, Spread: 20 * time.Second})
		defer h.Close()
		e := newEar()
		for range 2 * batch {
			defer h.Watch("foo", e.notify)()
		}
		h.Changed("foo")
		pass(time.Minute)
		for range 4 {
			h.Changed("foo")
			pass(900 * time.Millisecond)
		}
		pass(time.Minute)
		h.All()
		pass(time.Minute)
		told := slices.Compact(e.heard()) // when, for any watcher
		spread := 2*time.Minute + 3600*time.Millisecond
		want := []time.Duration{time.Second, time.Minute + 3*time.Second, spread, spread + 10*time.Second}
		if !slices.Equal(told, want) {
			t.Errorf("notified at %v, want %v", told, want)
		}
	})
}

func TestThousandWatchersAreNotifiedWithin100ms(t *testing.T) {
	inBubble(t, func(t *testing.T, h *Hub[string]) {
		e := newEar()
		for range 1000 {
			defer h.Watch("foo", e.notify)()
		}
		h.Changed("foo")
		pass(time.Second)
		if got := e.heard(); len(got) != 1000 || got[500] > 100*time.Millisecond {
			t.Errorf("%d were notified, the median after %v", len(got), got[len(got)/2])
		}
	})
}
