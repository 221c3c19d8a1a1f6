package secrets

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
)

func TestResourceIsMadeOnceAndShared(t *testing.T) {
	s := filled(t, func(c *Config) { c.MayReadConfigCluster = []string{"east", "west"} })
	first, err := s.Peek(caller("home", "shop", "web"), "kubernetes://own-home")
	must(t, err)
	var all sync.WaitGroup
	for _, c := range []*discovery.Caller{caller("home", "shop", "web"), caller("home", "shop", "gateway"), caller("east", "shop", "web"), caller("west", "shop", "web")} {
		all.Go(func() {
			for range 100 {
				if got, err := s.Peek(c, "kubernetes://own-home"); err != nil || got != first {
					t.Errorf("%s/%s has one of its own: %v", c.Cluster, c.Identity, err)
				}
			}
		})
	}
	all.Wait()
	if counts := s.Counts(); counts.Cached != 1 {
		t.Errorf("%+v", counts)
	}
}

func TestConcurrentGetsMakeOne(t *testing.T) {
	c := newCache(1 << 20)
	made, all := 0, sync.WaitGroup{}
	gate := make(chan struct{})
	for range 50 {
		all.Go(func() {
			c.get(madeOf{name: "foo"}, "1", func() product { <-gate; made++; return product{} })
		})
	}
	close(gate)
	all.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

func TestCacheIsBoundedAndEvictsLeastUsed(t *testing.T) {
	s := newScene(t, func(c *Config) { c.CacheBytes = 20 << 10 })
	for i := range 50 {
		s.at("home").put(fmt.Sprint("shop/foo-", i), tlsOf(fmt.Sprint("a", i%3)))
	}
	c := caller("home", "shop", "web")
	first, err := s.Peek(c, "kubernetes://foo-0")
	must(t, err)
	for i := range 50 {
		s.secret(t, c, fmt.Sprint("kubernetes://foo-", i))
		s.secret(t, c, "kubernetes://foo-0")
	}
	again, err := s.Peek(c, "kubernetes://foo-0")
	counts := s.Counts()
	if err != nil || again != first || counts.CachedBytes > 20<<10 || counts.Cached < 5 || counts.Cached > 19 {
		t.Errorf("%+v, the most used was kept: %v", counts, again == first)
	}
	for i := range 50 {
		s.Changed(Event{Cluster: "home", Namespace: "shop", Name: fmt.Sprint("foo-", i)})
	}
	if counts := s.Counts(); counts.Cached != 0 || counts.CachedBytes != 0 || len(s.made.slots) != 0 {
		t.Errorf("after all have changed: %+v", counts)
	}
}

func TestOversizedResourceIsServedUncached(t *testing.T) {
	s := newScene(t, func(c *Config) { c.CacheBytes = 1 })
	s.at("home").put("shop/foo", tlsOf("a"))
	if got := s.had(t, caller("home", "shop", "web"), "kubernetes://foo"); got != "key a" || s.Counts().Cached != 0 {
		t.Errorf("%s, %+v", got, s.Counts())
	}
}

func TestUnwatchedOrRemovedKeyIsNotCached(t *testing.T) {
	s := filled(t, nil)
	c := caller("home", "shop", "web")
	watch := func(name string) (stop func()) {
		t.Helper()
		stop, err := s.Watch(c, name, func(string) {})
		must(t, err)
		s.secret(t, c, name)
		return stop
	}
	leave, leaveAlso := watch("kubernetes://foo"), watch("kubernetes://shop/foo")
	leave()
	if n := s.Counts().Cached; n != 2 {
		t.Errorf("%d are kept while one watches", n)
	}
	leaveAlso()
	if n := s.Counts().Cached; n != 0 {
		t.Errorf("%d are kept for nobody", n)
	}
	defer watch("kubernetes://foo")()
	defer watch("kubernetes://own-home")()
	s.at("home").remove("shop/foo")
	s.Changed(Event{Cluster: "home", Namespace: "shop", Name: "foo"})
	if n := s.Counts().Cached; n != 1 {
		t.Errorf("%d are kept after one has gone", n)
	}
	s.Changed(Event{Cluster: "east"})
	if n := s.Counts().Cached; n != 1 {
		t.Errorf("%d are kept after another cluster was swapped", n)
	}
	s.Changed(Event{Cluster: "home"})
	if n := s.Counts().Cached; n != 0 {
		t.Errorf("%d are kept after the cluster was swapped", n)
	}
}

func TestResourceDroppedWhileMadeIsNotCached(t *testing.T) {
	c := newCache(1 << 20)
	key := madeOf{place: place{"home", Secret, "shop", "foo"}, name: "kubernetes://foo"}
	c.get(key, "1", func() product { c.drop(key.place); return product{} })
	if slots, bytes := c.size(); slots != 0 || bytes != 0 {
		t.Errorf("%d with %d bytes", slots, bytes)
	}
}

func TestRecreatedSecretIsNotServedFromCache(t *testing.T) {
	s := newScene(t, nil)
	c := caller("home", "shop", "web")
	s.at("home").put("shop/foo", tlsOf("a"))
	if got := s.had(t, c, "kubernetes://foo"); got != "key a" {
		t.Fatal(got)
	}
	old := s.at("home").secrets["shop/foo"].ObjectMeta
	s.at("home").put("shop/foo", tlsOf("b"))
	s.at("home").secrets["shop/foo"].ResourceVersion = old.ResourceVersion
	s.at("home").secrets["shop/foo"].UID = "another"
	if got := s.had(t, c, "kubernetes://foo"); got != "key b" {
		t.Error(got)
	}
	s.at("home").secrets["shop/foo"].ResourceVersion = ""
	for _, name := range []string{"c", "d"} {
		s.at("home").secrets["shop/foo"].Data = tlsOf(name)
		if got := s.had(t, c, "kubernetes://foo"); got != "key "+name {
			t.Errorf("without a version: %s", got)
		}
	}
}

// Names that run into each other where words are only put together: shop + web-shop,
// shop-web + shop.
var (
	someClusters   = []string{"home", "east", "west", "home-shop"}
	someNamespaces = []string{"shop", "shop-a", "a", "a-shop"}
	someNames      = []string{"a", "a-cacert", "shop-a", "a-shop", "shop", "a-cacert-cacert", "shop-a-cacert"}
	someSchemes    = []string{"kubernetes://", "kubernetes-gateway://", "configmap://"}
)

// Whatever is asked before, in whatever order, each caller has what a source without a
// cache would give it: what its own namespace has in the clusters that it may read.
func TestCacheNeverLeaksBetweenProxies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, r := newFleet(someClusters...), newRights()
		cfg := Config{Clusters: f, Access: r, MayReadConfigCluster: []string{"east"}, CacheBytes: rapid.SampledFrom([]int{8 << 10, 1 << 20}).Draw(t, "bytes"),
			Grants: []Grant{{To: Who{"*", "west", "shop", "*"}, Namespace: "a", Names: []string{"a"}}}}
		source, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			id, namespace := rapid.SampledFrom(someClusters).Draw(t, "cluster"), rapid.SampledFrom(someNamespaces).Draw(t, "namespace")
			name := rapid.SampledFrom(someNames).Draw(t, "name")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1: // an object appears or changes, not always with an event
				put(f.clusters[id], namespace, name, rapid.IntRange(0, 1).Draw(t, "version"))
			case 2:
				f.clusters[id].remove(namespace + "/" + name)
			case 3:
				r.set(access.Subject{Cluster: id, Namespace: namespace, ServiceAccount: "web"}, rapid.SampledFrom([]error{nil, access.ErrDenied, access.ErrNotReady}).Draw(t, "right"))
			case 4:
				source.Changed(Event{Cluster: id, Namespace: namespace, Name: name})
			default:
				asks(t, source, f, r, caller(id, namespace, "web"), name)
			}
		}
	})
}

// put sets an object that says where it is from.
func put(c *cluster, namespace, name string, version int) {
	at := fmt.Sprint(c.id, "/", namespace, "/", name, "/", version)
	c.put(namespace+"/"+name, tlsOf(at))
	c.putMap(namespace+"/"+name, map[string]string{"ca.crt": string(of("map of " + at).cert)})
}

// asks holds what the source answers to what a fresh one does, which has an empty cache,
// and to where the content says that it is from.
func asks(t *rapid.T, source *Source, f *fleet, r *rights, c *discovery.Caller, object string) {
	name := rapid.SampledFrom(someSchemes).Draw(t, "scheme")
	namespace := rapid.SampledFrom(append([]string{""}, someNamespaces...)).Draw(t, "asked namespace")
	if namespace != "" {
		name += namespace + "/"
	} else {
		namespace = c.Identity.Namespace
	}
	name += object
	cfg := source.cfg
	cfg.Clusters, cfg.Access = f, r
	fresh, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	want, wantErr := fresh.Peek(c, name)
	got, gotErr := source.Peek(c, name)
	if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
		t.Fatalf("%s for %s/%s: %v, not %v", name, c.Cluster, c.Identity, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	if got.Version != want.Version || got.Name != name || string(got.Body.Value) != string(want.Body.Value) {
		t.Fatalf("%s for %s/%s is another's", name, c.Cluster, c.Identity)
	}
	from := origin(got.Body.Value)
	if !strings.Contains(from, c.Cluster+"/"+namespace+"/") && !(c.Cluster == "east" && strings.Contains(from, "home/"+namespace+"/")) {
		t.Fatalf("%s for %s/%s is of %s", name, c.Cluster, c.Identity, from)
	}
}
