package proxy

import (
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
