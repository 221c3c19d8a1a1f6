package signing_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/signing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a Work with a handler of the test.
type desk struct {
	*signing.Work[string]

	mu      sync.Mutex
	seen    []string
	running map[string]int
	most    int
	twice   bool // one object was handled twice at once
}

func newDesk(ctx context.Context, room int, handle func(context.Context, string) time.Duration) *desk {
	d := &desk{running: map[string]int{}}
	d.Work = signing.NewWork(ctx, room, func(ctx context.Context, object string) time.Duration {
		d.enter(object)
		defer d.leave(object)
		return handle(ctx, object)
	})
	return d
}

func (d *desk) enter(object string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, object)
	d.running[object]++
	d.twice = d.twice || d.running[object] > 1
	d.most = max(d.most, len(d.running))
}

func (d *desk) leave(object string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[object]--; d.running[object] == 0 {
		delete(d.running, object)
	}
}

func (d *desk) calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

// put adds an object that was made n seconds into the test.
func (d *desk) put(start time.Time, n int) {
	name := fmt.Sprint(n)
	d.Put(types.UID(name), "shop", start.Add(time.Duration(n)*time.Second), name)
}

func TestOldestObjectGoesFirstWithinTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 2, func(context.Context, string) time.Duration { time.Sleep(time.Minute); return 0 })
		start := time.Now()
		for _, n := range []int{7, 8, 5, 3, 6, 1, 2, 4} {
			d.put(start, n)
		}
		d.Drop("3")
		time.Sleep(time.Hour)
		d.Close()
		got := d.calls()
		slices.Sort(got[:2]) // two at once
		slices.Sort(got[2:4])
		slices.Sort(got[4:6])
		if want := []string{"7", "8", "1", "2", "4", "5", "6"}; !slices.Equal(got, want) || d.most != 2 {
			t.Errorf("%q were handled, %d at once; want %q, two at once", got, d.most, want)
		}
	})
}

func TestHandlerDecidesWhenItIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 10, func(_ context.Context, object string) time.Duration {
			if object == "1" {
				return time.Minute
			}
			return 0
		})
		defer d.Close()
		start := time.Now()
		d.put(start, 1)
		d.put(start, 2)
		synctest.Wait()
		for range 100 { // who sleeps is not hurried by changes
			d.put(start, 1)
		}
		synctest.Wait()
		if got := len(d.calls()); got != 2 {
			t.Errorf("%d calls at once, want 2", got)
		}
		d.put(start, 2) // who rests is looked at when it changes
		time.Sleep(61 * time.Second)
		if got := d.calls()[2:]; !slices.Equal(got, []string{"2", "1"}) {
			t.Errorf("then %q", got)
		}
	})
}

func TestObjectThatChangesMeanwhileIsLookedAtOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 10, func(context.Context, string) time.Duration { time.Sleep(time.Second); return 0 })
		defer d.Close()
		start := time.Now()
		for range 5 {
			d.put(start, 1)
		}
		time.Sleep(time.Minute)
		if got := d.calls(); len(got) != 2 || d.twice {
			t.Errorf("%d calls, want 2; two at once: %t", len(got), d.twice)
		}
	})
}

func TestDroppedObjectEndsItsHandlerAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		d := newDesk(t.Context(), 1, func(ctx context.Context, _ string) time.Duration { <-ctx.Done(); ended++; return time.Second })
		defer d.Close()
		start := time.Now()
		d.put(start, 1) // handled
		d.put(start, 2) // in line
		d.Drop("2")
		d.Drop("1")
		d.Drop("none")
		time.Sleep(time.Minute)
		if got := d.calls(); ended != 1 || len(got) != 1 || d.Len() != 0 {
			t.Errorf("%d ended, %q called, %d known", ended, got, d.Len())
		}
	})
}

func TestObjectThatComesBackWhileItsHandlerEndsIsHandledAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 5, func(ctx context.Context, _ string) time.Duration {
			select {
			case <-ctx.Done():
				time.Sleep(time.Second) // slow to notice
			case <-time.After(time.Hour):
			}
			return 0
		})
		defer d.Close()
		start := time.Now()
		d.put(start, 1)
		synctest.Wait()
		d.Drop("1")
		d.put(start, 1)
		time.Sleep(time.Minute)
		if got := d.calls(); len(got) != 2 || d.twice || d.Len() != 1 {
			t.Errorf("%d calls, two at once: %t, %d known", len(got), d.twice, d.Len())
		}
	})
}

func TestCloseEndsHandlersAndTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 2, func(ctx context.Context, object string) time.Duration {
			if object == "1" {
				return time.Second
			}
			<-ctx.Done()
			return time.Second
		})
		start := time.Now()
		for n := range 10 {
			d.put(start, n+1)
		}
		synctest.Wait()
		d.Close()
		calls := len(d.calls())
		d.put(start, 11)
		d.Close()
		time.Sleep(time.Hour)
		if got := len(d.calls()); got != calls || d.Len() != 0 {
			t.Errorf("%d calls after the end, %d known", got-calls, d.Len())
		}
	})
}

func TestThoseWithoutRoomHoldNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 10, func(ctx context.Context, _ string) time.Duration { <-ctx.Done(); return 0 })
		start, before := time.Now(), runtime.NumGoroutine()
		for n := range 10000 {
			d.put(start, n)
		}
		synctest.Wait()
		if more := runtime.NumGoroutine() - before; more > 10 {
			t.Errorf("%d goroutines for 10 handlers", more)
		}
		d.Close()
	})
}

func TestObjectThatIsOverIsLeftAloneHoweverItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 10, func(context.Context, string) time.Duration { time.Sleep(time.Second); return signing.Over })
		defer d.Close()
		start := time.Now()
		d.put(start, 1)
		d.put(start, 1) // while it is handled
		time.Sleep(time.Minute)
		d.put(start, 1)
		time.Sleep(time.Minute)
		if got := d.calls(); len(got) != 1 || d.Len() != 1 {
			t.Errorf("%d calls, want 1; %d known", len(got), d.Len())
		}
		d.Drop("1")
		if d.Len() != 0 {
			t.Error("a dropped object is remembered")
		}
	})
}

// Old requests of one namespace that come back for ever do not keep a young one of another out.
func TestFloodOfOneNamespaceLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 10, func(context.Context, string) time.Duration { time.Sleep(10 * time.Second); return time.Second })
		defer d.Close()
		start := time.Now()
		for n := range 1000 {
			d.put(start, n)
		}
		time.Sleep(65 * time.Second) // in the middle of six calls
		d.Put("late", "bank", time.Now(), "late")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if !slices.Contains(d.calls(), "late") {
			t.Error("another namespace's object waits behind the flood")
		}
		if d.most != 7 || d.twice {
			t.Errorf("%d at once, want 6 and the other; one twice: %t", d.most, d.twice)
		}
	})
}

// Floods of many owners leave room for one more, however many they are.
func TestFloodsOfManyOwnersLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 100, func(ctx context.Context, _ string) time.Duration { <-ctx.Done(); return 0 })
		defer d.Close()
		for n := range 1000 {
			d.Put(types.UID(fmt.Sprint(n)), fmt.Sprint("flood-", n%7), time.Now(), "flood")
		}
		synctest.Wait()
		d.Put("late", "bank", time.Now(), "late")
		synctest.Wait()
		if !slices.Contains(d.calls(), "late") {
			t.Error("another namespace's object waits behind the floods")
		}
		if n := len(d.calls()); n < 85 || n > 100 {
			t.Errorf("%d of 100 places are used", n)
		}
	})
}

// A request rests while its issuer is not ready, and is looked at when that changes.
func TestObjectThatRestsIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t.Context(), 10, func(_ context.Context, object string) time.Duration {
			return map[string]time.Duration{"1": 0, "2": time.Hour, "3": signing.Over}[object]
		})
		defer d.Close()
		for n := range 3 {
			d.put(time.Now(), n+1)
		}
		synctest.Wait()
		for _, uid := range []types.UID{"1", "2", "3", "none"} {
			d.Again(uid)
		}
		synctest.Wait()
		if got := d.calls(); len(got) != 4 || got[3] != "1" || d.Len() != 3 {
			t.Errorf("%q were handled, %d are known", got, d.Len())
		}
	})
}
