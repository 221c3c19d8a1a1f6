package pluginhost

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// crashOften opens the circuit.
func (w *world) crashOften(t *testing.T) {
	t.Helper()
	for range crashLimit {
		w.mustSign(t, "good")
		w.last().end(errors.New("it crashed"))
		synctest.Wait()
	}
	if s := w.p.Status(); s.State != CircuitOpen {
		t.Fatalf("after %d crashes it is %s", crashLimit, s.State)
	}
}

func TestCircuitDoesNotOutliveCertificate(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		w.crashOften(t)
		time.Sleep(2 * time.Second)
		before := time.Now()
		w.needs(before.Add(10 * time.Second))
		w.mustSign(t, "good")
		if took := time.Since(before); took > time.Second {
			t.Errorf("a probe took %s", took)
		}
		// It signed: the circuit is not open, but no crash is forgotten.
		w.needsNothing()
		w.last().end(errors.New("again"))
		synctest.Wait()
		if s := w.p.Status(); s.State != CircuitOpen || time.Until(s.NextStart) < probes.First*3/4 {
			t.Errorf("%s, next in %s", s.State, time.Until(s.NextStart))
		}
	})
}

func TestProbesForCertificateAreSpaced(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration // of what is held; 0: nothing is
		gap  time.Duration
		mute bool // the last life signed nothing
	}{
		"hours are left":   {24 * time.Hour, probes.First * 3 / 4, false},
		"a minute is left": {time.Minute, 6 * time.Second, false},
		"it nearly ended":  {3 * time.Second, leastGap, false},
		"nothing is held":  {0, leastGap, false},
		"nothing is held, and the last life signed nothing": {0, bareGap, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "good", func(t *testing.T, w *world) {
				w.crashOften(t)
				w.p.recovery.signs = !c.mute
				w.mu.Lock()
				w.broken = 1
				w.isDue = true
				if c.left > 0 {
					w.end = time.Now().Add(c.left)
				}
				w.mu.Unlock()
				last, starts := w.p.started, w.starts()
				for range 100 { // streams that come again and again bring no probe closer
					_, _ = w.sign(time.Millisecond)
				}
				for w.starts() == starts {
					time.Sleep(10 * time.Millisecond)
				}
				if gap := time.Since(last); gap < c.gap || gap > c.gap+c.gap*3/4 {
					t.Errorf("the probe came after %s, want %s", gap, c.gap)
				}
			})
		})
	}
}

func TestOnlyDueCallsProbeOpenCircuit(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		w.crashOften(t)
		starts := w.starts()
		for range 10 {
			if _, err := w.sign(time.Second); err == nil {
				t.Error("a call of something that is not due had a probe")
			}
			w.needs(time.Now().Add(5 * time.Second))
			if _, err := w.p.RenewalInfo(t.Context(), nil); err == nil {
				t.Error("advice had a probe")
			}
			w.needsNothing()
			time.Sleep(time.Second)
		}
		if n := w.starts(); n != starts {
			t.Errorf("%d probes", n-starts)
		}
	})
}

// A caller waits for what has no schedule: a JWT-SVID for another audience, the first roots, a list.
func TestWhatIsWaitedForProbesOpenCircuit(t *testing.T) {
	for name, call := range map[string]func(*Provider, context.Context) error{
		"a JWT-SVID": func(s *Provider, ctx context.Context) error {
			_, err := s.SignJWT(ctx, ca.JWTRequest{})
			return err
		},
		"roots": func(s *Provider, ctx context.Context) error {
			_, err := s.Roots(ctx)
			return err
		},
		"watched roots": func(s *Provider, ctx context.Context) error {
			return s.WatchRoots(ctx, func([]byte) error { return nil })
		},
		"revocation lists": func(s *Provider, ctx context.Context) error {
			_, err := s.Revocations(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "good", func(t *testing.T, w *world) {
				w.crashOften(t)
				before := time.Now()
				for call(w.p, t.Context()) != nil {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(before); took > 3*leastGap {
					t.Errorf("answered after %s", took)
				}
			})
		})
	}
}

// A provider that is killed from outside and signs in between is not in a crash loop.
func TestLifeThatSignedManyTimesOpensNoCircuit(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		for i := range 3 * crashLimit {
			for range provenBy {
				w.mustSign(t, "good")
			}
			w.last().end(errors.New("killed"))
			synctest.Wait()
			if s := w.p.Status(); s.State != Backoff || time.Until(s.NextStart) > time.Second {
				t.Fatalf("after kill %d it is %s until %s", i+1, s.State, s.NextStart)
			}
		}
	})
}

func TestDueCallMovesFromHangingToFreshProcess(t *testing.T) {
	for _, is := range []string{"stuck", "mute", "hanging"} {
		t.Run(is, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(is)
				hung := make(chan struct{})
				w.p.Begin()
				first := w.last()
				first.hold = hung // "stuck" gets ready
				time.Sleep(time.Second)
				w.needs(time.Now().Add(10 * time.Second))
				w.becomes("good")
				if by, err := w.signUntil(10 * time.Second); err != nil || by != "good" {
					t.Errorf("signed by %q, %v", by, err)
				}
				if !process.HasEnded(first) {
					t.Error("it hangs still")
				}
				if err := w.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestSlowProviderIsLeftAlone(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		slow := w.last()
		slow.hold = make(chan struct{})
		w.needs(time.Now().Add(10 * time.Second))
		time.AfterFunc(9*time.Second, func() { close(slow.hold) })
		w.mustSign(t, "good")
		if w.starts() != 1 {
			t.Errorf("%d starts", w.starts())
		}
	})
}

func TestAbsentCADoesNotHangEvenWhenDue(t *testing.T) {
	begun(t, "away", func(t *testing.T, w *world) {
		w.needs(time.Now().Add(10 * time.Second))
		if _, err := w.sign(20 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if w.starts() != 1 {
			t.Errorf("%d starts", w.starts())
		}
	})
}

// A provider that is killed each second signs what it has to: certificates of 20 s, asked
// for from their half on.
func TestProviderKilledEachSecondStillSigns(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		const life = 20 * time.Second
		quit := time.After(10 * time.Minute)
		killer := time.NewTicker(time.Second)
		defer killer.Stop()
		go func() {
			for {
				select {
				case <-killer.C:
					w.kill()
				case <-w.p.closed:
					return
				}
			}
		}()
		for end := time.Now().Add(life); ; end = time.Now().Add(life) {
			select {
			case <-time.After(life / 2):
			case <-quit:
				return
			}
			w.needs(end)
			if _, err := w.signUntil(life / 2); err != nil {
				t.Fatalf("a certificate ended: %v", err)
			}
			w.needsNothing()
		}
	})
}

func (w *world) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[len(w.lives)-1].end(errors.New("killed"))
}

// signUntil asks again and again, as the engine does when a provider gets ready.
func (w *world) signUntil(most time.Duration) (by string, err error) {
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if by, err = w.sign(time.Until(deadline)); err == nil || !strings.Contains(err.Error(), ca.Unavailable.String()) {
			break
		}
	}
	return by, err
}

// becomes has later lives of the plan be another way.
func (w *world) becomes(is string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.later = is
}
