package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestWatchedNameIsHeldAndChangesAreNotified(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.Cluster = "west" }, func(w *world) {
		first, second := w.pair(web), w.pair(web)
		w.put(web, first)
		notices, _ := w.watch(web)
		w.holds(web, first)
		w.put(web, second)
		w.holds(web, second)
		if len(notices) != 2 {
			t.Errorf("notified %d times, want 2", len(notices))
		}
		c := w.called()[0]
		if c.who != "first" || c.headers.Get("clusterid")[0] != "west" || len(c.headers.Get("authorization")) > 0 {
			t.Errorf("called as %q with %v", c.who, c.headers)
		}
		if n, _ := w.told(xds.Acked); n != 2 {
			t.Errorf("%d answers were acknowledged, want 2", n)
		}
		s := w.client.Status()
		if !s.Connected || s.Credential != "certificate" || len(s.Names) != 1 || s.Names[0].State != gateway.Held || s.Names[0].NotAfter.IsZero() {
			t.Errorf("status %+v", s)
		}
	})
}

func TestManyWatchersShareOneStream(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		other := web + "-cacert"
		w.put(web, w.pair(web))
		ca := w.roots(other)
		w.put(other, ca)
		for range 20 {
			w.watch(web)
			w.watch(other)
		}
		w.holds(other, ca)
		if n := w.engine.Streams(); n != 1 {
			t.Errorf("%d streams", n)
		}
		if n, _ := w.told(xds.Pushed); n != 2 {
			t.Errorf("%d answers, want 2: each name is subscribed to once", n)
		}
	})
}

func TestUnwatchedServiceIsNotDialled(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		time.Sleep(time.Hour)
		if n := w.dialled(); n != 0 {
			t.Errorf("dialled %d times", n)
		}
	})
}

func TestHeldSecretsOutliveServiceAndAreNotResent(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inWorld(t, nil, func(w *world) {
		other := "kubernetes://api"
		kept, changed := w.pair(web), w.pair(other)
		w.put(web, kept)
		w.put(other, w.pair(other))
		w.watch(web)
		w.watch(other)
		w.stop()
		time.Sleep(24 * time.Hour)
		w.holds(web, kept)
		if s := w.client.Status(); s.Connected || s.Failure == nil || s.Failure.NextTry.IsZero() {
			t.Errorf("status %+v", s)
		}
		if n := w.dialled(); n < 24*30 || n > 24*60 {
			t.Errorf("dialled %d times in a day", n)
		}
		w.told(xds.Pushed)
		w.put(other, changed)
		w.start()
		time.Sleep(2 * time.Minute) // it was away for long
		w.holds(other, changed)
		w.holds(web, kept)
		w.mu.Lock()
		for _, e := range w.service.events {
			if e.Kind == xds.Pushed && (len(e.Names) != 1 || e.Names[0] != other) {
				t.Errorf("sent again: %v", e.Names)
			}
		}
		w.mu.Unlock()
		if s := w.client.Status(); !s.Connected || s.Failure != nil {
			t.Errorf("status %+v", s)
		}
	})
}

func TestResumedStreamWithoutNewsIsConnected(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.put(web, w.pair(web))
		w.watch(web)
		w.stop()
		w.start()
		time.Sleep(time.Minute)
		if s := w.client.Status(); !s.Connected || w.count(gateway.Connected) != 2 {
			t.Errorf("status %+v, connected %d times", s, w.count(gateway.Connected))
		}
		time.Sleep(time.Hour)
		if n := w.count(gateway.Connected); n != 2 {
			t.Errorf("connected %d times: silence was taken for a fault", n)
		}
	})
}

func TestRemovedNameIsUnknownUntilItReturns(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		again := w.pair(web)
		w.put(web, w.pair(web))
		notices, _ := w.watch(web)
		w.change(func() { delete(w.items, web) })
		w.answers(web, xds.ErrUnknown)
		if len(notices) != 2 || w.count(gateway.Removed) != 1 {
			t.Errorf("notified %d times, removed %d", len(notices), w.count(gateway.Removed))
		}
		w.put(web, again)
		w.holds(web, again)
	})
}

func TestUnreadyNameWaits(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.change(func() { w.items[web] = nil })
		w.watch(web)
		w.answers(web, xds.ErrNotReady)
		late := w.pair(web)
		w.put(web, late)
		w.holds(web, late)
	})
}

func TestUnwatchedNameIsDroppedAfterLinger(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		_, stop := w.watch(web)
		stop()
		stop()
		time.Sleep(5 * time.Minute)
		w.holds(web, good)
		_, stop = w.watch(web) // it is back: an Envoy was restarted
		time.Sleep(time.Hour)
		w.holds(web, good)
		stop()
		time.Sleep(16 * time.Minute)
		w.answers(web, xds.ErrNotReady)
		if n := w.engine.Streams(); n != 0 {
			t.Errorf("%d streams, and nothing is wanted", n)
		}
		if s := w.client.Status(); s.Connected || len(s.Names) != 0 || s.Failure != nil || w.count(gateway.Failed) != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestUnwatchedNameIsUnsubscribed(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		other := "kubernetes://api"
		w.put(web, w.pair(web))
		w.put(other, w.pair(other))
		w.watch(web)
		_, stop := w.watch(other)
		stop()
		time.Sleep(16 * time.Minute)
		w.told(xds.Pushed)
		w.put(other, w.pair(other))
		synctest.Wait()
		if n, _ := w.told(xds.Pushed); n != 0 {
			t.Error("a name without a watcher is still subscribed to")
		}
	})
}

func TestNothingIsForgottenWhileServiceIsAway(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		_, stop := w.watch(web)
		w.stop()
		stop()
		time.Sleep(5 * time.Hour)
		w.watch("kubernetes://other") // for which there is room
		w.holds(web, good)
	})
}

func TestOtherNamesNeverReachService(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		for _, name := range []string{
			"", "default", "ROOTCA", "file-cert:/a~/b", "file-root:system", "kubernetes://", "kubernetes:///web", "kubernetes://shop/", "kubernetes://a/b/c",
			"kubernetes://Web", "kubernetes://we b", "kubernetes://web\n", "kubernetes-gateway://web", "configmap://web", "KUBERNETES://web",
			"kubernetes://" + strings.Repeat("a", 300), "kubernetes://../web",
		} {
			if _, err := w.client.Watch(secret.Caller{}, name, func(string) {}); err == nil {
				t.Errorf("%q is watched", name)
			}
			w.answers(name, xds.ErrUnknown)
		}
		if n := w.dialled(); n != 0 {
			t.Errorf("dialled %d times", n)
		}
		for _, name := range []string{"kubernetes://web", "kubernetes://shop/web-cacert", "configmap://shop/roots", "kubernetes://web.v1", web} {
			w.watch(name)
		}
	})
}

func TestExcessNamesAreRefused(t *testing.T) {
	inWorld(t, func(_ *world, c *gateway.Config) { c.MaxNames = 1 }, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		_, stop := w.watch(web)
		if _, err := w.client.Watch(secret.Caller{}, "kubernetes://other", func(string) {}); err == nil {
			t.Error("a second name is watched")
		}
		w.answers("kubernetes://other", xds.ErrUnknown)
		w.holds(web, good)
		w.stop()
		stop()
		time.Sleep(time.Hour)
		w.watch("kubernetes://other") // makes room of what is not watched
	})
}

func TestRemovedNameIsAskedForAgainAfterReconnect(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		same := w.items[web]
		w.change(func() { delete(w.items, web) })
		w.answers(web, xds.ErrUnknown)
		w.stop()
		w.change(func() { w.items[web] = same })
		w.start()
		w.pass()
		w.holds(web, good)
	})
}
