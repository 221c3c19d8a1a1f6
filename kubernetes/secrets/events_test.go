package secrets

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
)

// ears counts what those who watch are told, as <who> <name>.
type ears struct {
	mu   sync.Mutex
	told []string
}

func (e *ears) watch(t *testing.T, s *scene, c *discovery.Caller, names ...string) {
	t.Helper()
	for _, name := range names {
		stop, err := s.Watch(c, name, func(got string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if got != name {
				t.Errorf("%s is told as %s", name, got)
			}
			e.told = append(e.told, c.Cluster+"/"+c.Identity.Namespace+" "+name)
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(stop)
	}
}

// heard returns what was told since the last time.
func (e *ears) heard() string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.told
	e.told = nil
	slices.Sort(told)
	return strings.Join(told, ", ")
}

func TestChangeNotifiesExactlyItsWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, func(c *Config) {
			c.MayReadConfigCluster = []string{"east"}
			c.Grants = []Grant{{To: Who{"*", "east", "shop", "web"}, Namespace: "bank", Names: []string{"foo"}}}
		})
		var e ears
		for _, id := range []string{"home", "east", "west"} {
			e.watch(t, s, caller(id, "shop", "web"), "kubernetes://foo", "kubernetes://shop/foo-cacert", "kubernetes-gateway://shop/foo", "configmap://shop/foo", "kubernetes://bar", "kubernetes://foo-bar")
		}
		e.watch(t, s, caller("home", "bank", "web"), "kubernetes://foo")
		e.watch(t, s, caller("east", "shop", "web"), "kubernetes-gateway://bank/foo")
		all := func(id string) string {
			return id + "/shop kubernetes-gateway://shop/foo, " + id + "/shop kubernetes://foo, " + id + "/shop kubernetes://shop/foo-cacert"
		}
		for _, test := range []struct {
			event Event
			want  string
		}{
			{Event{Cluster: "home", Namespace: "shop", Name: "foo"}, all("east") + ", " + all("home")},
			{Event{Cluster: "east", Namespace: "shop", Name: "foo"}, all("east")},
			{Event{Cluster: "west", Namespace: "shop", Name: "foo"}, all("west")},
			{Event{Cluster: "home", Namespace: "shop", Name: "foo-cacert"}, "east/shop kubernetes://shop/foo-cacert, home/shop kubernetes://shop/foo-cacert"},
			{Event{Cluster: "west", Namespace: "shop", Name: "foo-cacert"}, "west/shop kubernetes://shop/foo-cacert"},
			{Event{Cluster: "home", Namespace: "bank", Name: "foo"}, "east/shop kubernetes-gateway://bank/foo, home/bank kubernetes://foo"},
			{Event{Cluster: "west", Namespace: "bank", Name: "foo"}, ""},
			{Event{Cluster: "west", Namespace: "shop", Name: "foo", Kind: ConfigMap}, "west/shop configmap://shop/foo"},
			{Event{Cluster: "north", Namespace: "shop", Name: "foo"}, ""},
			{Event{Cluster: "home", Namespace: "shop", Name: "fo"}, ""},
		} {
			s.Changed(test.event)
			time.Sleep(time.Second)
			if got := e.heard(); got != test.want {
				t.Errorf("%+v is told to\n%s, not to\n%s", test.event, got, test.want)
			}
		}
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
		s.Changed(Event{Cluster: "east", Namespace: "shop", Name: "foo"})
		s.Changed(Event{Cluster: "east", Namespace: "shop", Name: "foo"})
		time.Sleep(time.Second)
		if got, want := e.heard(), all("east")+", "+all("home"); got != want {
			t.Errorf("a burst is told as %s", got)
		}
	})
}

func TestSwappedClusterNotifiesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t, func(c *Config) { c.MayReadConfigCluster = []string{"east"} })
		var e ears
		for _, id := range []string{"home", "east", "west"} {
			e.watch(t, s, caller(id, "shop", "web"), "kubernetes://foo", "kubernetes://foo-cacert")
		}
		both := func(id string) string { return id + "/shop kubernetes://foo, " + id + "/shop kubernetes://foo-cacert" }
		for id, want := range map[string]string{"west": both("west"), "east": both("east"), "home": both("east") + ", " + both("home"), "north": ""} {
			s.Changed(Event{Cluster: id})
			time.Sleep(2 * time.Second)
			if got := e.heard(); got != want {
				t.Errorf("%s is told to %s", id, got)
			}
			if last := s.rights.forgotten[len(s.rights.forgotten)-1]; last != id {
				t.Errorf("the rights of %s are forgotten", last)
			}
		}
		// One that is not connected takes nothing, one that goes what it gave; one that comes
		// back gives it.
		gone := s.at("east")
		s.fleet.off("east")
		if got := s.had(t, caller("east", "shop", "web"), "kubernetes://foo"); got != "not ready" {
			t.Errorf("of a cluster that is not connected: %s", got)
		}
		s.fleet.set("east", nil)
		if got := s.had(t, caller("east", "shop", "web"), "kubernetes://foo"); got != "cluster" {
			t.Errorf("of a cluster that has gone: %s", got)
		}
		s.fleet.set("east", gone)
		if got := s.had(t, caller("east", "shop", "web"), "kubernetes://foo"); got != "key east foo" {
			t.Errorf("of a cluster that is back: %s", got)
		}
	})
}

func TestForbiddenNameIsUnwatchedAndCANeedsNoRights(t *testing.T) {
	s := newScene(t, nil)
	c := caller("home", "shop", "web")
	for _, name := range []string{"foo", "kubernetes://bank/foo", "kubernetes-gateway://bank/foo", "kubernetes://bank/foo-cacert", "kubernetes://shop/../foo"} {
		if _, err := s.Watch(c, name, nil); err == nil {
			t.Errorf("%s is watched", name)
		}
	}
	web := access.Subject{Cluster: "home", Namespace: "shop", ServiceAccount: "web"}
	for name, want := range map[string]int{"kubernetes://foo": 1, "kubernetes://foo-cacert": 0, "configmap://bank/foo": 0} {
		stop, err := s.Watch(c, name, nil)
		if err != nil || s.rights.watches[web] != want {
			t.Errorf("%s: %v, the rights are watched %d times", name, err, s.rights.watches[web])
		}
		stop()
		if s.rights.watches[web] != 0 {
			t.Errorf("%s: the rights are watched after the end", name)
		}
	}
}

// The clock of the bubble leaves out what the machine has else to do.
func TestThousandStreamsAreNotifiedWithin100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.at("home").put("shop/foo", tlsOf("a"))
		c := caller("home", "shop", "web")
		var mu sync.Mutex
		var took []time.Duration
		begin := time.Now()
		for i := range 1000 {
			stop, err := s.Watch(c, []string{"kubernetes://foo", "kubernetes://foo-cacert"}[i%2], func(name string) {
				if _, err := s.Peek(c, name); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(begin))
			})
			must(t, err)
			defer stop()
		}
		s.at("home").put("shop/foo", tlsOf("b"))
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
		time.Sleep(time.Second)
		synctest.Wait()
		slices.Sort(took)
		if len(took) != 1000 || took[500] > 100*time.Millisecond {
			t.Errorf("%d were notified, the median after %v", len(took), took[len(took)/2])
		}
		if n := s.Counts().Cached; n != 2 {
			t.Errorf("%d resources were made", n)
		}
	})
}

func BenchmarkPeek(b *testing.B) {
	s := newScene(b, nil)
	s.rights = nil
	s.at("home").put("shop/foo", tlsOf("a"))
	s.cfg.Access = yes{}
	c := caller("home", "shop", "web")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Peek(c, "kubernetes://foo"); err != nil {
			b.Fatal(err)
		}
	}
}

// yes is a right that all have.
type yes struct{ Rights }

func (yes) Peek(access.Subject, string) error { return nil }
func (yes) Hold(access.Subject, string)       {}
