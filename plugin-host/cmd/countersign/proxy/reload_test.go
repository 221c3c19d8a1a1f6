package proxy

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// watching is a configuration that looks every second and gathers for ten.
func watching(r Reload) Config {
	r.Timeout, r.DrainTime, r.ParentShutdownTime = 30*time.Second, 45*time.Second, time.Minute
	return Config{RestartLimit: 5, Watch: Watch{Folders: []string{"x"}, Interval: time.Second, MinDelay: 10 * time.Second}, Reload: r}
}

func TestABurstOfChangesIsOneReload(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		for n := range 9 {
			w.change(fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it was told too soon: %v", got)
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

func TestChangesWithoutEndAreToldOnceInTheMinimumDelay(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		for n := range 100 {
			w.change(fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if got := len(w.last().got()); got < 8 || got > 10 {
			t.Errorf("in 100 s it was told %d times", got)
		}
	})
}

func TestWhatWasChangedBackIsNotTold(t *testing.T) {
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

func TestAStartTakesInWhatHasChanged(t *testing.T) {
	begun(t, watching(Reload{Signal: syscall.SIGHUP}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(2 * time.Second)
		w.ends(1)
		time.Sleep(time.Minute)
		w.starts(t, 2)
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it was told what it has read: %v", got)
		}
	})
}

func TestAReloadCommandGetsThePIDAndIsNotRunTwiceAtOnce(t *testing.T) {
	begun(t, watching(Reload{Command: []string{"true", "{pid}"}}), func(t *testing.T, w *world) {
		w.set(func() { w.slow = 25 * time.Second })
		for n := range 30 {
			w.change(fmt.Sprint(n))
			time.Sleep(time.Second)
		}
		if got := len(w.ran()); got != 1 {
			t.Errorf("%d commands were run", got)
		}
		if got := w.ran()[0].argv; !slices.Equal(got, []string{"true", "100"}) {
			t.Errorf("the command is %v", got)
		}
		time.Sleep(time.Minute)
		if got, s := len(w.ran()), w.p.Status(); got != 2 || s.Reloads != 2 {
			t.Errorf("%d commands were run; status %+v", got, s)
		}
	})
}

func TestACommandThatFailsIsNotTriedAgainUntilSomethingElseHasChanged(t *testing.T) {
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

func TestACommandIsCutShortByTheEnd(t *testing.T) {
	begun(t, watching(Reload{Command: []string{"true"}}), func(t *testing.T, w *world) {
		w.set(func() { w.slow = 29 * time.Second })
		w.change("other")
		time.Sleep(15 * time.Second)
		w.stop()
		w.ended(t, 0)
	})
}

// flagOf returns what follows a flag.
func flagOf(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func TestAnEpochFollowsTheOtherByTheBaseIDOfTheFirst(t *testing.T) {
	begun(t, watching(Reload{HotRestart: true}), func(t *testing.T, w *world) {
		first := w.last()
		if !slices.Contains(first.argv, "--use-dynamic-base-id") || flagOf(first.argv, "--restart-epoch") != "0" ||
			flagOf(first.argv, "--drain-time-s") != "45" || flagOf(first.argv, "--parent-shutdown-time-s") != "60" {
			t.Errorf("the first is %v", first.argv)
		}
		for epoch := 1; epoch < 4; epoch++ {
			before := w.last()
			w.change(fmt.Sprint(epoch))
			time.Sleep(12 * time.Second)
			w.starts(t, epoch+1)
			now := w.last()
			if flagOf(now.argv, "--base-id") != "4711" || flagOf(now.argv, "--restart-epoch") != fmt.Sprint(epoch) ||
				slices.Contains(now.argv, "--use-dynamic-base-id") {
				t.Errorf("epoch %d is %v", epoch, now.argv)
			}
			if got := strings.Join(w.ran()[epoch-1].argv, " "); got != "true --mode validate" {
				t.Errorf("epoch %d was checked by %q", epoch, got)
			}
			// A change while the old one drains waits for its end.
			w.change(fmt.Sprint(epoch, " again"))
			time.Sleep(40 * time.Second)
			w.change(fmt.Sprint(epoch))
			time.Sleep(2 * time.Second)
			w.starts(t, epoch+1)
			if s := w.p.Status(); s.PID != now.pid || s.OldPID != before.pid || s.Epoch != epoch || s.Reloads != epoch-1 {
				t.Errorf("the status is %+v", s)
			}
			before.drain()
			before.end(exit{})
			time.Sleep(30 * time.Second)
			if s := w.p.Status(); s.OldPID != 0 || s.Reloads != epoch || s.Restarts != 0 {
				t.Errorf("the status is %+v", s)
			}
		}
	})
}

func TestAConfigurationThatIsNotValidLeavesTheEpochThatRuns(t *testing.T) {
	begun(t, watching(Reload{HotRestart: true}), func(t *testing.T, w *world) {
		w.set(func() { w.failing = errors.New("not valid") })
		w.change("other")
		time.Sleep(time.Hour)
		w.starts(t, 1)
		if s := w.p.Status(); s.State != Running || s.Failed != 1 {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestAnEpochThatEndsBeforeItTookOverLeavesTheOneBefore(t *testing.T) {
	begun(t, watching(Reload{HotRestart: true}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(12 * time.Second)
		w.starts(t, 2)
		w.ends(1)
		time.Sleep(time.Hour)
		w.starts(t, 2)
		if s := w.p.Status(); s.PID != 100 || s.Epoch != 0 || s.Failed != 1 || s.State != Running || s.Restarts != 0 {
			t.Errorf("the status is %+v", s)
		}
		// Its base id is good for no other epoch; so the next change is a gap.
		w.change("another")
		time.Sleep(12 * time.Second)
		w.starts(t, 3)
		if now := w.last(); flagOf(now.argv, "--restart-epoch") != "0" || !slices.Contains(now.argv, "--use-dynamic-base-id") {
			t.Errorf("the next is %v", now.argv)
		}
		if got := w.all()[0].got(); !slices.Equal(got, []os.Signal{syscall.SIGTERM}) {
			t.Errorf("the one before got %v", got)
		}
	})
}

func TestAnEpochThatEndsAfterItTookOverIsACrash(t *testing.T) {
	begun(t, watching(Reload{HotRestart: true}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(12 * time.Second)
		w.starts(t, 2)
		w.all()[0].drain()
		w.ends(1)
		if got := w.all()[0].got(); !slices.Equal(got, []os.Signal{syscall.SIGTERM}) {
			t.Errorf("the one before, which serves nothing any more, got %v", got)
		}
		time.Sleep(time.Second)
		w.starts(t, 3)
		if now, s := w.last(), w.p.Status(); flagOf(now.argv, "--restart-epoch") != "0" || s.Restarts != 1 {
			t.Errorf("the next is %v; status %+v", now.argv, s)
		}
	})
}

func TestTheEndTakesBothEpochs(t *testing.T) {
	begun(t, watching(Reload{HotRestart: true}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(12 * time.Second)
		w.starts(t, 2)
		w.signals <- syscall.SIGUSR1
		w.stop()
		w.ended(t, 0)
		for _, f := range w.all() {
			if got := f.got(); !slices.Equal(got, []os.Signal{syscall.SIGUSR1, syscall.SIGTERM}) {
				t.Errorf("child %d got %v", f.pid, got)
			}
		}
	})
}

// located is watching, with what the tries for a locality find; "" is nothing yet.
func located(r Reload, zones string) Config {
	cfg := watching(r)
	cfg.Command, cfg.Env = []string{"--zone={locality}"}, map[string]string{"ZONE": "{locality}"}
	cfg.Locality = Locality{Value: zones, Tries: 3, Interval: 5 * time.Second}
	return cfg
}

func TestALocalityThatIsThereIsThereAtTheStart(t *testing.T) {
	inBubble(t, located(Reload{HotRestart: true}, "eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Hour)
		w.starts(t, 1)
		if f := w.last(); f.argv[1] != "--zone=eu-1" || !slices.Equal(f.env, []string{"ZONE=eu-1"}) {
			t.Errorf("it was started as %v with %v", f.argv, f.env)
		}
	})
}

func TestALocalityThatComesLateIsHandedOverByAReload(t *testing.T) {
	inBubble(t, located(Reload{HotRestart: true}, ",,eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		w.starts(t, 1)
		if f := w.last(); f.argv[1] != "--zone=" {
			t.Errorf("it was started as %v", f.argv)
		}
		time.Sleep(time.Minute)
		w.starts(t, 2)
		if f, s := w.last(), w.p.Status(); f.argv[1] != "--zone=eu-1" || s.Epoch != 1 || s.Locality != "eu-1" {
			t.Errorf("it was started as %v; status %+v", f.argv, s)
		}
		time.Sleep(time.Hour)
		if w.asked != 3 {
			t.Errorf("%d tries", w.asked)
		}
	})
}

func TestALocalityThatNobodyKnowsIsTriedSoOftenAndNoMore(t *testing.T) {
	inBubble(t, located(Reload{HotRestart: true}, ",,,,eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Hour)
		w.starts(t, 1)
		if w.asked != 3 {
			t.Errorf("%d tries", w.asked)
		}
	})
}

func TestASignalCarriesNoLocality(t *testing.T) {
	inBubble(t, located(Reload{Signal: syscall.SIGHUP}, ",eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Minute)
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it got %v", got)
		}
		w.ends(1)
		time.Sleep(time.Second)
		synctest.Wait()
		if f := w.last(); f.argv[1] != "--zone=eu-1" {
			t.Errorf("it was started again as %v", f.argv)
		}
	})
}
