package proxy

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// flagOf returns what follows a flag.
func flagOf(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func TestEpochsShareTheFirstBaseID(t *testing.T) {
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
			if got := strings.Join(w.ran()[epoch-1].Args, " "); got != "true --mode validate" {
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

func TestInvalidConfigurationKeepsRunningEpoch(t *testing.T) {
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

func TestEpochEndingEarlyKeepsPreviousEpoch(t *testing.T) {
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

func TestEpochEndingAfterTakeoverIsACrash(t *testing.T) {
	begun(t, watching(Reload{HotRestart: true}), func(t *testing.T, w *world) {
		w.change("other")
		time.Sleep(12 * time.Second)
		w.starts(t, 2)
		w.all()[0].drain()
		w.ends(1)
		if got := w.all()[0].got(); !slices.Equal(got, []os.Signal{syscall.SIGTERM}) {
			t.Errorf("the one before, which serves nothing any more, got %v", got)
		}
		time.Sleep(restarts.First * 5 / 4)
		w.starts(t, 3)
		if now, s := w.last(), w.p.Status(); flagOf(now.argv, "--restart-epoch") != "0" || s.Restarts != 1 {
			t.Errorf("the next is %v; status %+v", now.argv, s)
		}
	})
}

func TestStopEndsBothEpochs(t *testing.T) {
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
