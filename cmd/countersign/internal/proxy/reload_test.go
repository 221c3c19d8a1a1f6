package proxy

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// watching is a configuration that looks every second and gathers for ten.
func watching(r Reload) Config {
	r.Timeout, r.DrainTime, r.ParentShutdownTime = 30*time.Second, 45*time.Second, time.Minute
	return Config{RestartLimit: 5, Watch: Watch{Folders: []string{"x"}, Interval: time.Second, MinDelay: 10 * time.Second}, Reload: r}
}

func TestBurstOfChangesIsOneReload(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		for n := range 9 {
			w.change(fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it was reloaded too soon: %v", got)
		}
		time.Sleep(10 * time.Second)
		if got := w.last().got(); !slices.Equal(got, []os.Signal{syscall.SIGHUP}) {
			t.Errorf("it got %v", got)
		}
		if s := w.p.Status(); s.Reloads != 1 || s.Failed != 0 {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestEndlessChangesAreLimitedByMinimumDelay(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		for n := range 100 {
			w.change(fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if got := len(w.last().got()); got < 8 || got > 10 {
			t.Errorf("in 100 s it was reloaded %d times", got)
		}
	})
}

func TestRevertedChangeIsNotReported(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(3 * time.Second)
		w.change("")
		time.Sleep(time.Minute)
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it got %v", got)
		}
	})
}

func TestRestartAbsorbsPendingChanges(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(2 * time.Second)
		w.ends(1)
		time.Sleep(time.Minute)
		w.starts(t, 2)
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it was reloaded for what it has read: %v", got)
		}
	})
}

func TestReloadCommandGetsPIDAndRunsOnceAtATime(t *testing.T) {
	begun(t, watching(Reload{Command: []string{"true", "{pid}"}}), func(t *testing.T, w *world) {
		w.set(func() { w.slow = 25 * time.Second })
		for n := range 30 {
			w.change(fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if got := len(w.ran()); got != 1 {
			t.Errorf("%d commands were run", got)
		}
		if got := w.ran()[0].Args; !slices.Equal(got, []string{"true", "100"}) {
			t.Errorf("the command is %v", got)
		}
		time.Sleep(time.Minute)
		if got, s := len(w.ran()), w.p.Status(); got != 2 || s.Reloads != 2 {
			t.Errorf("%d commands were run; status %+v", got, s)
		}
	})
}

func TestFailedReloadCommandWaitsForNextChange(t *testing.T) {
	begun(t, watching(Reload{Command: []string{"true"}}), func(t *testing.T, w *world) {
		w.set(func() { w.failing = errors.New("no") })
		w.change("other")
		time.Sleep(time.Hour)
		if s := w.p.Status(); len(w.ran()) != 1 || s.Failed != 1 || s.LastError != "reload: no" || s.State != Running {
			t.Errorf("%d were run; status %+v", len(w.ran()), s)
		}
		w.change("another")
		time.Sleep(time.Minute)
		if got := len(w.ran()); got != 2 {
			t.Errorf("%d commands were run", got)
		}
	})
}

func TestStopInterruptsReloadCommand(t *testing.T) {
	begun(t, watching(Reload{Command: []string{"true"}}), func(t *testing.T, w *world) {
		w.set(func() { w.slow = 29 * time.Second })
		w.change("other")
		time.Sleep(15 * time.Second)
		w.stop()
		w.ended(t, 0)
	})
}
