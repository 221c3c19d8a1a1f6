package pluginhost

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// reload puts a plan in force, as [Provider.Reload] does with an entry.
func (w *world) reload(ctx context.Context, p *Plan) error {
	n := w.p.nextOf(p)
	err := n.Start(ctx)
	if err == nil {
		n.Commit()
	}
	return err
}

// next is a plan that is not in force yet.
func (w *world) next(p *Plan) *Plan { p.s = w.p; return p }

// signs returns who signs for a client, or the error.
func (w *world) signs(t *testing.T, c Client) (string, error) {
	t.Helper()
	cert, err := c.CSRSign(t.Context(), ca.SignRequest{})
	return string(cert.Chain), err
}

func TestPreparedPlanIsCalledAfterCommit(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		old, plan := w.p.Client(), w.planThat("better")
		if err := w.next(plan).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var by string
		go func() { by, _ = w.signs(t, Client{w.p, plan}) }()
		synctest.Wait()
		if got, err := w.signs(t, old); got != "good" || err != nil || by != "" {
			t.Errorf("before the commit: %q, %v; the new one has answered %q", got, err, by)
		}
		w.mustSign(t, "good")
		w.next(plan).Commit()
		synctest.Wait()
		if by != "better" {
			t.Errorf("the call that waited was answered by %q", by)
		}
		if got, err := w.signs(t, old); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("the old client after the commit: %q, %v", got, err)
		}
		w.mustSign(t, "better")
		w.last().end(errors.New("it crashed"))
		if got, err := w.signs(t, Client{w.p, plan}); got != "better" || err != nil {
			t.Errorf("after a crash: %q, %v", got, err)
		}
	})
}

func TestAbortedPlanLeavesNothing(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		started, unstarted := w.planThat("better"), w.planThat("better")
		if err := w.next(started).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.next(started).Abort()
		w.next(unstarted).Abort()
		w.next(started).Commit()
		if !process.HasEnded(w.last()) || w.plans != 1 {
			t.Errorf("it runs on; %d plans are open", w.plans)
		}
		if got, err := w.signs(t, Client{w.p, started}); ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("its client: %q, %v", got, err)
		}
		w.mustSign(t, "good")
	})
}

func TestPreparedLifeThatEndsIsStartedAgainAfterCommit(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		plan := w.planThat("better")
		if err := w.next(plan).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.last().end(errors.New("it crashed"))
		w.next(plan).Commit()
		w.mustSign(t, "better")
	})
}

func TestPlanThatWaitsForItsCAMakesRoomForRestart(t *testing.T) {
	inBubble(t, "good", func(t *testing.T, w *world) {
		prepared := make(chan error, 1)
		began := time.Now()
		go func() { prepared <- w.next(w.planThat("away")).Start(t.Context()) }()
		synctest.Wait()
		w.all()[0].end(errors.New("it crashed"))
		if by, err := w.sign(time.Minute); by != "good" || err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("%q, %v after %s", by, err, time.Since(began))
		}
		if err := <-prepared; ca.ReasonFor(err) != ca.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

// TestLatePrepareDropsNothing has the Prepare of an older configuration arrive after its context has ended,
// when another plan is prepared: the engine has that one's client already.
func TestLatePrepareDropsNothing(t *testing.T) {
	for name, late := range map[string]func(w *world) *Plan{
		"another plan":      func(w *world) *Plan { return w.planThat("away") },
		"the plan in force": func(w *world) *Plan { return w.p.gate.inForce() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, "good", func(t *testing.T, w *world) {
				plan := w.planThat("better")
				if err := w.next(plan).Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				over, cancel := context.WithCancel(t.Context())
				cancel()
				if err := w.next(late(w)).Start(over); !errors.Is(err, context.Canceled) {
					t.Errorf("the late one: %v", err)
				}
				w.next(plan).Commit()
				if by, err := w.signs(t, Client{w.p, plan}); by != "better" || err != nil {
					t.Errorf("%q, %v", by, err)
				}
				if w.plans != 1 {
					t.Errorf("%d plans are open", w.plans)
				}
			})
		})
	}
}

// A reload may come after the first life has taken its settings, and before run knows that it is ready.
func TestStartReturnsIfReloadOvertakesTheFirstLife(t *testing.T) {
	for range 20 { // run may receive the reload first, or the outcome
		synctest.Test(t, func(t *testing.T) {
			w := newWorld("good")
			started, busy := make(chan error, 1), make(chan struct{})
			go func() { started <- w.p.Start(t.Context()) }()
			go w.p.order(t.Context(), func() { <-busy })
			synctest.Wait()
			reloaded := make(chan error)
			go func() { reloaded <- w.reload(t.Context(), w.planThat("better")) }()
			time.Sleep(time.Second)
			close(busy)
			if err := <-reloaded; err != nil {
				t.Error(err)
			}
			w.mustSign(t, "better")
			synctest.Wait()
			select {
			case err := <-started:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Error("Start waits although the provider is ready")
			}
			if err := w.close(); err != nil {
				t.Error(err)
			}
		})
	}
}
