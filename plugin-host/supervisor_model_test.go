package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// step is something that happens to a provider; it returns what deviated from the model.
type step struct {
	name string
	do   func(*world, *model) error
}

func (s step) String() string { return s.name }

// model is all that has to be remembered to say what calls must meet.
type model struct{ signs string }

func crash(w *world, _ *model) error {
	w.last().end(errors.New("it crashed"))
	return nil
}

func wait(d time.Duration) func(*world, *model) error {
	return func(*world, *model) error {
		time.Sleep(d)
		return nil
	}
}

// callIt has a call answered by what was taken last, or at once by the open circuit.
func callIt(w *world, m *model) error {
	synctest.Wait()
	open, before := w.p.Status().State == CircuitOpen, time.Now()
	by, err := w.sign(time.Minute)
	if open {
		return unless(ca.ReasonFor(err) == ca.Unavailable && time.Since(before) == 0, fmt.Sprintf("circuit open: %q, %v after %s", by, err, time.Since(before)))
	}
	return unless(err == nil && by == m.signs, fmt.Sprintf("%q, %v; want %q", by, err, m.signs))
}

func reloadTo(is string, taken bool) func(*world, *model) error {
	return func(w *world, m *model) error {
		err := w.reload(context.Background(), w.planThat(is))
		if taken {
			m.signs = is
		}
		return unless((err == nil) == taken, fmt.Sprintf("reload to %s: %v", is, err))
	}
}

func reloadGivenUp(w *world, _ *model) error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	return unless(w.reload(ctx, w.planThat("hanging")) != nil, "a hanging one was taken")
}

// oneLives: whatever happened, one life at most is left when all is quiet.
func oneLives(w *world) error {
	n := 0
	for _, f := range w.all() {
		if f.stopped == 0 && !process.HasEnded(f) {
			n++
		}
	}
	return unless(n <= 1, fmt.Sprintf("%d lives at once", n))
}

var steps = []step{
	{"crash", crash}, {"call", callIt}, {"100 ms", wait(100 * time.Millisecond)}, {"31 s", wait(31 * time.Second)}, {"6 min", wait(6 * time.Minute)},
	{"reload to good", reloadTo("good", true)}, {"reload to better", reloadTo("better", true)},
	{"reload to wrong", reloadTo("wrong", false)}, {"reload to hanging", reloadTo("hanging", false)}, {"reload given up", reloadGivenUp},
}

func TestRandomEventsKeepCallsOnLastAcceptedPlan(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		story := rapid.SliceOfN(rapid.SampledFrom(steps), 1, 40).Draw(rt, "story")
		var err error
		synctest.Test(t, func(t *testing.T) { err = play(t, story) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func play(t *testing.T, story []step) error {
	w, m := newWorld("good"), &model{signs: "good"}
	err := w.p.Start(t.Context())
	for i, s := range story {
		if err == nil {
			if err = errors.Join(s.do(w, m), oneLives(w)); err != nil {
				err = fmt.Errorf("step %d, %s: %w", i+1, s.name, err)
			}
		}
	}
	if err == nil {
		time.Sleep(probes.Most + restarts.Most) // however often it ended, it comes back
		err = callIt(w, m)
	}
	return errors.Join(err, w.close())
}
