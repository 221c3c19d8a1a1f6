package proxy

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// located is watching, with what the tries for a locality find; "" is nothing yet.
func located(r Reload, zones string) Config {
	cfg := watching(r)
	cfg.Command, cfg.Env = []string{"--zone={locality}"}, map[string]string{"ZONE": "{locality}"}
	cfg.Locality = Locality{Value: zones, Tries: 3, Interval: 5 * time.Second}
	return cfg
}

func TestKnownLocalityIsUsedAtStart(t *testing.T) {
	inBubble(t, located(Reload{HotRestart: true}, "eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Hour)
		w.starts(t, 1)
		if f := w.last(); f.argv[1] != "--zone=eu-1" || !slices.Equal(f.env, []string{"ZONE=eu-1"}) {
			t.Errorf("it was started as %v with %v", f.argv, f.env)
		}
	})
}

func TestLateLocalityIsPassedByReload(t *testing.T) {
	inBubble(t, located(Reload{HotRestart: true}, ",,eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		w.starts(t, 0) // the first try is waited for
		time.Sleep(time.Second)
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

func TestUnknownLocalityIsTriedThreeTimes(t *testing.T) {
	inBubble(t, located(Reload{HotRestart: true}, ",,,,eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Hour)
		w.starts(t, 1)
		if w.asked != 3 {
			t.Errorf("%d tries", w.asked)
		}
	})
}

func TestLateLocalityIsWrittenBeforeSignal(t *testing.T) {
	cfg := located(Reload{Signal: syscall.SIGHUP}, ",eu-1")
	cfg.Locality.WriteFile = filepath.Join(t.TempDir(), "zone")
	inBubble(t, cfg, func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(2 * time.Second)
		w.starts(t, 1)
		if _, err := os.Stat(cfg.Locality.WriteFile); err == nil {
			t.Error("the file is there before the zone is known")
		}
		time.Sleep(time.Hour)
		if got := w.last().got(); len(got) != 1 || got[0] != syscall.SIGHUP {
			t.Errorf("it got %v", got)
		}
		w.starts(t, 1)
		if text, err := os.ReadFile(cfg.Locality.WriteFile); string(text) != "eu-1\n" {
			t.Errorf("the file has %q, %v", text, err)
		}
	})
	if left, err := filepath.Glob(filepath.Dir(cfg.Locality.WriteFile) + "/.*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestUnwritableLocalityFileIsRetried(t *testing.T) {
	cfg := located(Reload{Signal: syscall.SIGHUP}, "eu-1,eu-1,eu-1")
	folder := filepath.Join(t.TempDir(), "late")
	cfg.Locality.WriteFile = filepath.Join(folder, "zone")
	inBubble(t, cfg, func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(3 * time.Second)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := w.last().got(); len(got) != 1 || w.asked != 2 {
			t.Errorf("it got %v after %d tries", got, w.asked)
		}
	})
}

func TestLateLocalityReplacesProxyOnceIfWanted(t *testing.T) {
	for name, reload := range map[string]Reload{"signal": {Signal: syscall.SIGHUP}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			cfg := located(reload, ",eu-1")
			cfg.Locality.Restart = true
			inBubble(t, cfg, func(t *testing.T, w *world) {
				close(w.ready)
				time.Sleep(2 * time.Second)
				w.starts(t, 1)
				time.Sleep(time.Hour)
				w.starts(t, 2)
				if f, s := w.last(), w.p.Status(); f.argv[1] != "--zone=eu-1" || s.Restarts != 0 || s.Reloads != 1 {
					t.Errorf("it was started as %v; status %+v", f.argv, s)
				}
				if got := w.all()[0].got(); len(got) != 1 || got[0] != syscall.SIGTERM {
					t.Errorf("the one before got %v", got)
				}
			})
		})
	}
}

func TestProxyStartedWithLocalityIsNotReplaced(t *testing.T) {
	cfg := located(Reload{Signal: syscall.SIGHUP}, "eu-1")
	cfg.Locality.Restart = true
	inBubble(t, cfg, func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Minute)
		w.starts(t, 1)
		w.change("other")
		time.Sleep(time.Minute)
		if got := w.last().got(); len(got) != 1 || got[0] != syscall.SIGHUP {
			t.Errorf("it got %v", got)
		}
		w.starts(t, 1)
	})
}

func TestSignalCarriesNoLocality(t *testing.T) {
	inBubble(t, located(Reload{Signal: syscall.SIGHUP}, ",eu-1"), func(t *testing.T, w *world) {
		close(w.ready)
		time.Sleep(time.Minute)
		if got := w.last().got(); len(got) > 0 {
			t.Errorf("it got %v", got)
		}
		w.ends(1)
		time.Sleep(restarts.First * 5 / 4)
		synctest.Wait()
		if f := w.last(); f.argv[1] != "--zone=eu-1" {
			t.Errorf("it was started again as %v", f.argv)
		}
	})
}
