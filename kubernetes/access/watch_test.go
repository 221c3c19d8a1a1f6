package access

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRevocationIsNotifiedWhenAllowExpires(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		if err := settled(a, web); err != nil || told.Load() != 1 {
			t.Fatalf("%v, told %d times", err, told.Load())
		}
		f.allows(web, false)
		pass(4 * time.Minute)
		if err := a.Peek(web, tls); err != nil || told.Load() != 1 {
			t.Errorf("after 4 minutes: %v, told %d times", err, told.Load())
		}
		pass(time.Minute)
		if err := a.Peek(web, tls); !errors.Is(err, ErrDenied) || told.Load() != 2 {
			t.Errorf("after 5 minutes: %v, told %d times", err, told.Load())
		}
	})
}

func TestGrantIsNotifiedWithinAMinute(t *testing.T) {
	f := newAPI()
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		f.allows(web, true)
		pass(time.Minute)
		if err := a.Peek(web, tls); err != nil || told.Load() != 2 {
			t.Errorf("%v, told %d times", err, told.Load())
		}
	})
}

func TestAnswerLifetimesAreConfigurable(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{Allow: 10 * time.Second, Deny: 20 * time.Second}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		f.allows(web, false)
		pass(8*time.Second - 1)
		if err := a.Peek(web, tls); err != nil || f.times() != 1 {
			t.Errorf("before the last fifth of the yes: %v, asked %d times", err, f.times())
		}
		pass(time.Second + 1)
		if err := a.Peek(web, tls); !errors.Is(err, ErrDenied) || told.Load() != 2 {
			t.Errorf("then: %v, told %d times", err, told.Load())
		}
		f.allows(web, true)
		pass(20 * time.Second)
		if err := a.Peek(web, tls); err != nil || told.Load() != 3 || f.times() != 3 {
			t.Errorf("when the no has ended: %v, told %d times, asked %d times", err, told.Load(), f.times())
		}
	})
}

func TestUnchangedAnswerIsRefreshedSilently(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		for range 60 * 60 {
			pass(time.Second)
			if err := a.Peek(web, tls); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.times(); told.Load() != 1 || n < 12 || n > 16 {
			t.Errorf("in an hour: told %d times, asked %d times", told.Load(), n)
		}
	})
}

func TestShortOutageCostsNothing(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		pass(3 * time.Minute)
		f.fails(errDown)
		pass(100 * time.Second) // until 20 s before the end
		f.fails(nil)
		for range 60 {
			pass(time.Second)
			if err := a.Peek(web, tls); err != nil {
				t.Fatal(err)
			}
		}
		if told.Load() != 1 {
			t.Errorf("notified %d times", told.Load())
		}
	})
}

// What has changed meanwhile was answered with ErrNotReady, and would be lost.
func TestFirstAnswerAfterNotReadyIsNotified(t *testing.T) {
	var c shiftedClock
	f := newAPI(web)
	inBubble(t, f, Config{Now: c.now}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		c.jump(time.Hour)
		if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
			t.Fatal(err)
		}
		synctest.Wait()
		if told.Load() != 2 {
			t.Errorf("notified %d times", told.Load())
		}
	})
}

func TestUnwatchedSubjectIsNotRefreshed(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		_ = settled(a, web)
		stop()
		stop()
		f.allows(web, false)
		pass(time.Hour)
		if f.times() != 1 || told.Load() != 1 {
			t.Errorf("asked %d times, told %d times", f.times(), told.Load())
		}
		if err := settled(a, web); !errors.Is(err, ErrDenied) || told.Load() != 1 {
			t.Errorf("%v, told %d times after it had left", err, told.Load())
		}
	})
}

func TestAnswersOfReplacedAPIServerAreDropped(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		other := Subject{"east", "shop", "other"}
		_ = settled(a, other)
		f.allows(web, false)
		f.set(func() { f.slow = time.Second })
		a.Forget("east")
		if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
			t.Errorf("while the new one is asked: %v", err)
		}
		pass(time.Second)
		if err := a.Peek(web, tls); !errors.Is(err, ErrDenied) || told.Load() != 2 || f.times() != 3 {
			t.Errorf("then: %v, told %d times, asked %d times", err, told.Load(), f.times())
		}
		a.Forget("west")
		if n := a.Counts().Known; n != 1 {
			t.Errorf("%d are known", n)
		}
	})
}

func TestInFlightAnswerIsDroppedOnSwap(t *testing.T) {
	f := newAPI(web)
	f.slow = time.Second
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = a.Peek(web, tls)
		pass(500 * time.Millisecond)
		f.set(func() { f.slow = time.Minute })
		a.Forget("east") // the first review goes on in the fake, and says yes
		pass(time.Second)
		if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) || told.Load() != 0 {
			t.Errorf("%v, told %d times", err, told.Load())
		}
	})
}

func TestRemovedClusterDeniesUntilItReturns(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = settled(a, web)
		f.set(func() { f.gone["east"] = true })
		if err := a.Peek(web, tls); !errors.Is(err, ErrDenied) {
			t.Error(err)
		}
		a.Forget("east")
		pass(time.Hour)
		f.set(func() { f.gone["east"] = false })
		a.Forget("east")
		synctest.Wait()
		if err := a.Peek(web, tls); err != nil || told.Load() != 3 {
			t.Errorf("%v, told %d times", err, told.Load())
		}
	})
}

func TestClosedAccessAsksNothing(t *testing.T) {
	f := newAPI(web)
	f.hang = true
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		told, stop := watched(a, web)
		defer stop()
		_ = a.Peek(web, tls)
		synctest.Wait()
		a.Close()
		a.Close()
		if err := a.Peek(web, tls); !errors.Is(err, ErrNotReady) {
			t.Error(err)
		}
		a.Forget("east")
		pass(time.Hour)
		if f.times() != 1 || told.Load() != 0 {
			t.Errorf("asked %d times, told %d times", f.times(), told.Load())
		}
	})
}

func TestStoppedWatcherIsNotNotified(t *testing.T) {
	f := newAPI(web)
	inBubble(t, f, Config{}, func(t *testing.T, a *Access) {
		var told ear
		var stops [2]func()
		for i := range stops {
			stops[i] = a.Watch(web, func() { told.notify(); stops[1-i]() })
		}
		_ = settled(a, web)
		if told.Load() != 1 {
			t.Errorf("%d were notified, though each makes the other leave", told.Load())
		}
	})
}
