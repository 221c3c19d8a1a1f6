package pluginhost

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Callers of a registration authority come at 7 a second, and its provider is killed each 20 s for ten
// minutes: by the kernel, for its memory. All 4,200 are served, and none waits for half a second.
func TestProviderKilledEach20SecondsServesAllCalls(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		const calls = 7 * 600
		var served, longest atomic.Int64
		go func() {
			for range 29 {
				time.Sleep(20 * time.Second)
				w.kill()
			}
		}()
		var waiting sync.WaitGroup
		for range calls {
			waiting.Go(func() {
				before := time.Now()
				if _, err := w.sign(20 * time.Second); err == nil {
					served.Add(1)
				}
				for took := int64(time.Since(before)); ; {
					if most := longest.Load(); took <= most || longest.CompareAndSwap(most, took) {
						return
					}
				}
			})
			time.Sleep(time.Second / 7)
		}
		waiting.Wait()
		if served.Load() != calls || time.Duration(longest.Load()) > time.Second/2 {
			t.Errorf("%d of %d calls are served, and the longest takes %s", served.Load(), calls, time.Duration(longest.Load()))
		}
		if n := w.starts(); n != 30 {
			t.Errorf("%d starts for 29 kills", n)
		}
	})
}

// A provider that signs once and ends is in a crash loop. While callers wait it is started once a second
// at most; while none does, it is probed each 30 s, give or take a quarter.
func TestProviderThatSignsOnceAndEndsIsStartedRarely(t *testing.T) {
	for name, c := range map[string]struct {
		due  bool
		most int // starts in ten minutes
	}{
		"callers wait": {true, 600}, "none waits": {false, crashLimit + 27},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "good", func(t *testing.T, w *world) {
				if c.due {
					w.needs(time.Time{})
				}
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second / 7) {
					if _, err := w.sign(time.Second); err == nil {
						w.last().end(errors.New("it crashed"))
						synctest.Wait()
					}
				}
				if n := w.starts(); n > c.most {
					t.Errorf("%d starts in ten minutes, want %d at most", n, c.most)
				}
			})
		})
	}
}
