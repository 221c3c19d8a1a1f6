package proxy

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestProxyWaitsForFirstSecrets(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		time.Sleep(time.Hour)
		w.starts(t, 0)
		if s := w.p.Status(); s.State != Waiting {
			t.Errorf("the state is %s", s.State)
		}
		close(w.ready)
		w.starts(t, 1)
		if s := w.p.Status(); s.State != Running || s.PID != 100 {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestStopBeforeProxyStartExitsWithZero(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, w *world) {
		w.stop()
		w.ended(t, 0)
		w.starts(t, 0)
	})
}

func TestRestartPolicies(t *testing.T) {
	for _, test := range []struct {
		restart Restart
		code    int
		again   bool
	}{
		{OnFailure, 0, false},
		{OnFailure, 3, true},
		{Always, 0, true},
		{Always, 3, true},
		{Never, 0, false},
		{Never, 3, false},
	} {
		begun(t, Config{Restart: test.restart, RestartLimit: 1}, func(t *testing.T, w *world) {
			w.ends(test.code)
			if !test.again {
				w.ended(t, test.code)
				return
			}
			if s := w.p.Status(); s.State != Backoff || s.NextStart.IsZero() {
				t.Errorf("the status is %+v", s)
			}
			time.Sleep(restarts.First * 5 / 4)
			w.starts(t, 2)
			w.ends(7) // the limit is reached
			w.ended(t, 7)
		})
	}
}

func TestRestartsBackOffAndAreLimited(t *testing.T) {
	begun(t, Config{RestartLimit: 8}, func(t *testing.T, w *world) {
		for n := range 8 {
			w.ends(1)
			most := min(restarts.First<<n*5/4, restarts.Most)
			wait := time.Until(w.p.Status().NextStart)
			if wait < most/2 || wait > most {
				t.Errorf("restart %d comes after %s, want %s at most, and half of it at least", n+1, wait, most)
			}
			time.Sleep(most)
			w.starts(t, n+2)
		}
		time.Sleep(healthyAfter) // all is forgiven
		w.ends(1)
		if wait := time.Until(w.p.Status().NextStart); wait > restarts.First*5/4 {
			t.Errorf("after a minute of health it comes back after %s", wait)
		}
		time.Sleep(restarts.First * 5 / 4)
		if got := w.p.Status().Restarts; got != 9 {
			t.Errorf("%d restarts", got)
		}
	})
}

func TestUnstartableProgramIsRetriedThenGivenUp(t *testing.T) {
	inBubble(t, Config{RestartLimit: 2}, func(t *testing.T, w *world) {
		w.refuse = errors.New("no such file")
		close(w.ready)
		synctest.Wait()
		if s := w.p.Status(); s.State != Backoff || s.LastError != "no such file" {
			t.Errorf("the status is %+v", s)
		}
		time.Sleep(time.Minute)
		w.ended(t, cannotStart)
	})
}

func TestStopSendsSIGTERMThenSIGKILL(t *testing.T) {
	begun(t, Config{}, func(t *testing.T, w *world) {
		w.stop()
		w.ended(t, 0)
	})
	begun(t, Config{}, func(t *testing.T, w *world) {
		w.set(func() { w.stubborn = true })
		w.stop()
		time.Sleep(10*time.Second - time.Millisecond)
		if s := w.p.Status(); s.State != Stopping {
			t.Errorf("the state is %s", s.State)
		}
		time.Sleep(time.Millisecond)
		w.ended(t, 137)
	})
	// Dying of the SIGTERM that it was sent is an orderly end; its own exit code counts.
	for end, code := range map[exit]int{{143, syscall.SIGTERM}: 0, {code: 143}: 143, {code: 5}: 5} {
		begun(t, Config{}, func(t *testing.T, w *world) {
			w.set(func() { w.stubborn = true })
			w.stop()
			w.last().end(end)
			w.ended(t, code)
		})
	}
}

func TestNothingStartsWhileStopping(t *testing.T) {
	begun(t, Config{RestartLimit: 9}, func(t *testing.T, w *world) {
		w.ends(1)
		w.stop()
		time.Sleep(time.Minute)
		w.starts(t, 1)
		w.ended(t, 0)
	})
}

func TestSignalsArePassedOn(t *testing.T) {
	begun(t, Config{}, func(t *testing.T, w *world) {
		w.signals <- syscall.SIGUSR1
		if got := w.last().got(); !slices.Equal(got, []os.Signal{syscall.SIGUSR1}) {
			t.Errorf("it got %v", got)
		}
	})
}

func TestCrashBySignalGivesItsExitCode(t *testing.T) {
	begun(t, Config{Restart: Never}, func(t *testing.T, w *world) {
		w.last().end(exit{code: 139, signal: syscall.SIGSEGV})
		w.ended(t, 139)
	})
}
