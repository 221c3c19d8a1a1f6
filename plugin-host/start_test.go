package pluginhost

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// begun starts a provider without waiting for it.
func begun(t *testing.T, is string, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(is)
		w.p.Begin()
		test(t, w)
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestFailedFirstStartIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld("good")
		w.broken = 3
		w.p.Begin()
		w.mustSign(t, "good")
		if s := w.p.Status(); s.Restarts != 3 || s.State != Ready || s.LastError != "" {
			t.Errorf("%+v", s)
		}
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
}

// The replies of a CA that starts, or of a proxy in front of it, may look like a refusal.
func TestRefusedProviderIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		wrong, within time.Duration
		due           bool
	}{
		"nothing is held":          {5 * time.Second, 10 * time.Second, true},
		"nothing is held for long": {time.Hour, 10 * time.Minute, true},
		"nothing is due":           {time.Hour, 10 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			begun(t, "wrong", func(t *testing.T, w *world) {
				w.mu.Lock()
				w.isDue = c.due
				w.mu.Unlock()
				time.Sleep(c.wrong)
				if s := w.p.Status(); s.State != Refused || s.NextStart.IsZero() {
					t.Errorf("%+v", s)
				}
				w.becomes("good")
				time.Sleep(c.within)
				if s := w.p.Status(); s.State != Ready {
					t.Errorf("after %s: %+v", c.within, s)
				}
			})
		})
	}
}

func TestRefusedSettingsAreRarelyTriedAgain(t *testing.T) {
	begun(t, "wrong", func(t *testing.T, w *world) {
		time.Sleep(time.Hour)
		n := w.starts()
		if s := w.p.Status(); s.State != Refused || !strings.Contains(s.LastError, "these settings are wrong") || n > 12 {
			t.Errorf("%d starts, %+v", n, s)
		}
		w.needs(time.Now().Add(time.Second))
		before := time.Now()
		_, err := w.sign(time.Minute)
		if ca.ReasonFor(err) != ca.Unavailable || !strings.Contains(err.Error(), "these settings are wrong") || time.Since(before) > time.Second {
			t.Errorf("a call: %v after %s", err, time.Since(before))
		}
		if err := w.reload(t.Context(), w.planThat("wrong")); err != nil {
			t.Error(err)
		}
		if s := w.all(); len(s) > n+2 { // the call's and the reload's
			t.Errorf("%d starts after a reload, %d before", len(s), n)
		}
		time.Sleep(100 * time.Millisecond) // before the next start
		if s := w.p.Status(); s.State != Refused {
			t.Errorf("%+v", s)
		}
		if err := w.reload(t.Context(), w.planThat("good")); err != nil {
			t.Error(err)
		}
		w.mustSign(t, "good")
	})
}

func TestFixedSettingsAreTakenWhileCAIsAway(t *testing.T) {
	begun(t, "wrong", func(t *testing.T, w *world) {
		time.Sleep(time.Second)
		if err := w.reload(t.Context(), w.planThat("away")); err != nil {
			t.Error(err)
		}
		if err := w.reload(t.Context(), w.planThat("away")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if s := w.p.Status(); s.State != Configuring || s.LastReload != "" || w.starts() != 2 {
			t.Errorf("%d starts, %+v", w.starts(), s)
		}
		close(w.backCA)
		w.mustSign(t, "away")
	})
}

func TestHangingStartIsReplaced(t *testing.T) {
	for is, within := range map[string]time.Duration{"mute": 11 * time.Second, "hanging": 2 * time.Minute} {
		t.Run(is, func(t *testing.T) {
			begun(t, is, func(t *testing.T, w *world) {
				time.Sleep(within)
				if n := w.starts(); n != 2 {
					t.Errorf("%d starts in %s", n, within)
				}
			})
		})
	}
}
