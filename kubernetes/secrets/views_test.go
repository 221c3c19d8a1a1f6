package secrets

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/kubernetes/access"
)

// follows watches the names and looks once, as a stream does.
func (s *scene) follows(t *testing.T, c *discovery.Caller, names ...string) (stop func()) {
	t.Helper()
	var stops []func()
	for _, name := range names {
		stop, err := s.Watch(c, name, func(string) {})
		must(t, err)
		stops = append(stops, stop)
		_, _ = s.Peek(c, name)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// watched are the watched in words.
func (s *scene) watched() string {
	all := s.Watched()
	slices.SortFunc(all, func(a, b Watched) int {
		return cmp.Or(cmp.Compare(a.Cluster+"/"+a.Name, b.Cluster+"/"+b.Name), map[bool]int{true: 1, false: -1}[a.CA])
	})
	var words []string
	for _, w := range all {
		words = append(words, fmt.Sprintf("%s/%s/%s ca=%t %s", w.Cluster, w.Namespace, w.Name, w.CA, w.State))
	}
	return strings.Join(words, ", ")
}

func (s *scene) wantWatched(t *testing.T, want string) {
	t.Helper()
	if got := s.watched(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestWatchedCertificateStateFollowsClock(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	s := newScene(t, func(c *Config) { c.Now = func() time.Time { return now } })
	pair := issue("short", now.Add(200*time.Hour)) // a sixth of its 1,000 h is less than a week
	s.at("home").put("shop/foo", data{"tls.crt": pair.cert, "tls.key": pair.key})
	defer s.follows(t, caller("home", "shop", "web"), "kubernetes://foo")()
	for _, c := range []struct {
		left time.Duration
		want State
	}{{200 * time.Hour, Valid}, {1000 * time.Hour / 6, Valid}, {1000*time.Hour/6 - time.Second, Ending}, {time.Second, Ending}, {0, Expired}, {-time.Hour, Expired}} {
		now = pair.parsed.NotAfter.Add(-c.left)
		if all := s.Watched(); len(all) != 1 || all[0].State != c.want || !all[0].Ends.Equal(pair.parsed.NotAfter) {
			t.Errorf("%s before its end: %+v, want %s", c.left, all, c.want)
		}
	}
}

func TestLongLifetimeIsEndingInItsLastWeek(t *testing.T) {
	now := time.Now()
	year := lifetime{now.Add(-300 * 24 * time.Hour), now.Add(week)}
	if year.state(now) != Valid || year.state(now.Add(time.Second)) != Ending {
		t.Errorf("%s, then %s", year.state(now), year.state(now.Add(time.Second)))
	}
}

func TestEarliestExpiryInChainCounts(t *testing.T) {
	leaf, above := issue("leaf", time.Now().Add(900*time.Hour)), issue("intermediate", time.Now().Add(-time.Hour))
	s := newScene(t, nil)
	s.at("home").put("shop/foo", data{"tls.crt": slices.Concat(leaf.cert, above.cert), "tls.key": leaf.key})
	defer s.follows(t, caller("home", "shop", "web"), "kubernetes://foo")()
	s.wantWatched(t, "home/shop/foo ca=false expired")
}

func TestSharedWatchIsCountedOnce(t *testing.T) {
	s := newScene(t, nil)
	s.at("home").put("shop/foo", tlsOf("a"))
	stops := []func(){
		s.follows(t, caller("home", "shop", "web"), "kubernetes://foo", "kubernetes://foo-cacert"),
		s.follows(t, caller("home", "shop", "web"), "kubernetes://shop/foo"),
		s.follows(t, caller("home", "shop", "web"), "kubernetes://foo"),
		s.follows(t, caller("home", "shop", "api"), "kubernetes://foo"),
	}
	s.wantWatched(t, "home/shop/foo ca=false valid, home/shop/foo ca=true valid")
	stops[0]()
	s.wantWatched(t, "home/shop/foo ca=false valid")
	for _, stop := range stops[1:] {
		stop()
	}
	if got := s.watched(); got != "" || len(s.seen.of) != 0 {
		t.Errorf("after all have left: %q, %d", got, len(s.seen.of))
	}
	s.secret(t, caller("home", "shop", "web"), "kubernetes://foo")
	s.wantWatched(t, "") // who only fetches watches nothing
}

func TestWatchedListFollowsServedState(t *testing.T) {
	s := newScene(t, func(c *Config) { c.MayReadConfigCluster = []string{"east"} })
	c := caller("east", "shop", "web")
	web := access.Subject{Cluster: "east", Namespace: "shop", ServiceAccount: "web"}
	broken := tlsOf("a")
	broken["tls.key"] = of("b").key
	defer s.follows(t, c, "kubernetes://foo", "kubernetes://none")()
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"nothing there", func() {}, ""},
		{"in the config cluster", func() { s.at("home").put("shop/foo", tlsOf("a")) }, "home/shop/foo ca=false valid"},
		{"malformed in its own", func() { s.at("east").put("shop/foo", broken) }, "east/shop/foo ca=false malformed"},
		{"mended", func() { s.at("east").put("shop/foo", tlsOf("b")) }, "east/shop/foo ca=false valid"},
		{"not known for now", func() { s.at("east").fail(errNotSynced) }, "east/shop/foo ca=false valid"},
		{"known again", func() { s.at("east").fail(nil) }, "east/shop/foo ca=false valid"},
		{"no right", func() { s.rights.set(web, access.ErrDenied) }, ""},
		{"the right again", func() { s.rights.set(web, nil) }, "east/shop/foo ca=false valid"},
		{"deleted", func() { s.at("east").remove("shop/foo"); s.at("home").remove("shop/foo") }, ""},
		{"there again", func() { s.at("east").put("shop/foo", tlsOf("a")) }, "east/shop/foo ca=false valid"},
		{"the cluster gone", func() { s.fleet.set("east", nil) }, ""},
	} {
		step.do()
		_, _ = s.Peek(c, "kubernetes://foo")
		if got := s.watched(); got != step.want {
			t.Errorf("%s: got %q, want %q", step.what, got, step.want)
		}
	}
}

func TestBrokenSecretReportsProblemWithoutKey(t *testing.T) {
	s := newScene(t, nil)
	d := tlsOf("a")
	d["tls.key"] = of("b").key
	s.at("home").put("shop/foo", d)
	defer s.follows(t, caller("home", "shop", "web"), "kubernetes://foo")()
	all := s.Watched()
	if len(all) != 1 || all[0].Problem != "the key does not match the first certificate" || !all[0].Ends.IsZero() {
		t.Errorf("%+v", all)
	}
}

func TestRefusedWatchHasNoView(t *testing.T) {
	s := newScene(t, nil)
	if _, err := s.Watch(caller("home", "shop", "web"), "kubernetes://bank/foo", func(string) {}); err == nil || len(s.seen.of) != 0 {
		t.Errorf("%v, %d", err, len(s.seen.of))
	}
}
