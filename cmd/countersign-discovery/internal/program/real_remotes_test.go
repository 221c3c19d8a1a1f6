//go:build e2e && linux

package program

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// TestRealRemotes goes through what may become of the secret with the kubeconfigs, while
// streams of the remote cluster are open.
func TestRealRemotes(t *testing.T) {
	home, east := newRealm(t, kubetest.Options{Name: "home"}), newRealm(t, kubetest.Options{Name: "east"})
	for _, c := range []realm{home, east} {
		c.account(shop, "web", true)
		c.put("shop/foo", tlsOf(t, c.name))
	}
	nowhere := bytes.ReplaceAll(east.kubeconfig(), []byte(east.URL), []byte("https://127.0.0.1:1"))
	home.kubeconfigs("dead", data{"dead": nowhere})
	w := serveReal(t, home, east, "times: {drain: 0s, sync: 1s}\n")

	// One that does not sync holds nobody up longer than it may.
	w.becomes(t, "dead", "is connecting and says why", func(s *fleet.Status) bool {
		return s != nil && s.State != fleet.Synced && !s.Serving && strings.Contains(s.Fault, "refused")
	})
	w.comes(t, w.bearer(t, "home/shop/web"), "delta", "kubernetes://foo").gets(t, "kubernetes://foo", "key home", w)

	// Before it is added, nobody is of it.
	if err := w.comes(t, w.holder(t, "east/shop/web"), "delta", "kubernetes://foo").ends(t, w); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token of a cluster that is not there: %v", err)
	}
	open := map[string]*client{}
	for protocol := range dialects {
		open[protocol] = w.comes(t, w.bearer(t, "east/shop/web"), protocol, "kubernetes://foo", "kubernetes://foo-cacert")
	}
	open["delta"].gets(t, "kubernetes://foo", "-", w)

	have := func(protocols ...string) {
		t.Helper()
		for _, p := range protocols {
			open[p].gets(t, "kubernetes://foo", "key east", w)
			open[p].gets(t, "kubernetes://foo-cacert", "CA ca of east", w)
		}
	}
	first := east.kubeconfig()
	home.kubeconfigs("remotes", data{"east": first, "west": east.kubeconfig()})
	have("delta", "state of the world")
	w.becomes(t, "west", "is synced", synced)

	// The same bytes, and another key: nothing becomes of east.
	since := w.cluster(t, "east").Since
	home.kubeconfigs("remotes", data{"east": first})
	w.becomes(t, "west", "is gone, as its key was taken out", func(s *fleet.Status) bool { return s == nil })
	if now := w.cluster(t, "east"); !now.Since.Equal(since) || now.State != fleet.Synced {
		t.Errorf("the same bytes again: %+v", now)
	}

	// An id that another one holds, and the local one's.
	home.kubeconfigs("thief", data{"east": home.kubeconfig(), "home": east.kubeconfig()})
	w.becomes(t, "east", "stays whose it is", func(s *fleet.Status) bool {
		return len(s.Refused) == 1 && s.Refused[0] == "secret istio-system/thief" && s.Source == "secret istio-system/remotes" && s.Server == east.URL
	})
	w.becomes(t, "home", "is claimed in vain", func(s *fleet.Status) bool { return len(s.Refused) == 1 && s.Local })
	w.comes(t, w.bearer(t, "home/shop/web"), "delta", "kubernetes://foo").gets(t, "kubernetes://foo", "key home", w)
	home.remove("istio-system/thief")
	w.becomes(t, "east", "is claimed by one", func(s *fleet.Status) bool { return len(s.Refused) == 0 })

	// A malformed one keeps what there was; so does one that reaches nobody.
	home.kubeconfigs("remotes", data{"east": []byte("{")})
	w.becomes(t, "east", "serves on, with a fault", func(s *fleet.Status) bool { return s.State == fleet.Failed && s.Serving })
	home.kubeconfigs("remotes", data{"east": nowhere})
	w.becomes(t, "east", "serves on, connecting", func(s *fleet.Status) bool { return s.State != fleet.Synced && s.Serving && s.Server == east.URL })
	east.put("shop/foo", merged(tlsOf(t, "east"), data{"ca.crt": fresh(t, "anew").PEM()}))
	open["delta"].gets(t, "kubernetes://foo-cacert", "CA anew", w)

	// An update swaps without a gap.
	before := open["delta"].count()
	home.kubeconfigs("remotes", data{"east": east.kubeconfig()})
	w.becomes(t, "east", "is synced anew", func(s *fleet.Status) bool { return synced(s) && s.Since.After(since) })
	east.put("shop/foo", tlsOf(t, "swapped"))
	for _, c := range open {
		c.gets(t, "kubernetes://foo", "key swapped", w)
		c.gets(t, "kubernetes://foo-cacert", "CA ca of swapped", w)
	}
	for _, name := range open["delta"].since(before) {
		if strings.HasPrefix(name, "-") {
			t.Errorf("while it was swapped, %s was removed", name)
		}
	}

	// Deleted, and there again, while the streams are open.
	home.remove("istio-system/remotes")
	open["delta"].gets(t, "kubernetes://foo", "-", w)
	open["delta"].gets(t, "kubernetes://foo-cacert", "-", w)
	w.becomes(t, "east", "is gone", func(s *fleet.Status) bool { return s == nil })
	east.put("shop/foo", tlsOf(t, "back"))
	home.kubeconfigs("remotes", data{"east": east.kubeconfig()})
	for _, c := range open {
		c.gets(t, "kubernetes://foo", "key back", w)
		c.gets(t, "kubernetes://foo-cacert", "CA ca of back", w)
	}
	silent(t, w)
}
