//go:build e2e && linux

package program

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// TestRealChanges has streams open while secrets, rights and API servers change.
func TestRealChanges(t *testing.T) {
	home, east := newRealm(t, kubetest.Options{Name: "home"}), newRealm(t, kubetest.Options{Name: "east"})
	revoke := map[string]func(){}
	for _, c := range []realm{home, east} {
		revoke[c.name] = c.account(shop, "gateway", true)
		for _, name := range []string{"gw", "foo"} {
			c.put("shop/"+name, tlsOf(t, c.name+" "+name))
		}
	}
	home.account(shop, "poor", false)
	revoke["tenant"] = home.account(shop, "tenant", true)
	home.kubeconfigs("remotes", data{"east": east.kubeconfig()})
	w := serveReal(t, home, east, atOnce)
	w.becomes(t, "east", "is synced", synced)
	for protocol := range dialects {
		t.Run("a rotation reaches whom it concerns, "+protocol, func(t *testing.T) { w.rotates(t, protocol) })
	}
	poor := w.comes(t, w.bearer(t, "home/shop/poor"), "delta", plain)
	poor.gets(t, plain, "-", w)
	t.Run("an answer to who may read is kept", w.keepsAnswers)
	home.Bind(shop, "system:serviceaccount:shop:poor", listSecrets) // a no is kept for a minute
	t.Run("rights are taken away", func(t *testing.T) { w.loses(t, revoke["east"]) })
	t.Run("a right is taken away, and given back", func(t *testing.T) {
		serveReal(t, home, east, atOnce+"access: {allow: 10s, deny: 10s}\n").losesAndRegains(t, revoke["tenant"])
	})
	t.Run("an API server goes away and comes back", w.outlives)
	t.Run("a no has ended, and the right is there", func(t *testing.T) {
		eventually(t, func() bool { return poor.of(plain) == "key restored" }, "it has the secret", w.log)
	})
	silent(t, w)
}

const (
	twin        = "kubernetes-gateway://shop/gw-cacert"
	gatewayName = "kubernetes-gateway://shop/gw"
	plain       = "kubernetes://foo"
)

func (w *world) rotates(t *testing.T, protocol string) {
	for _, c := range []realm{w.home, w.east} {
		who := c.name + "/shop/gateway"
		concerned := w.comes(t, w.bearer(t, who), protocol, gatewayName, twin, plain)
		other := w.comes(t, w.holder(t, who), protocol, plain)
		for _, each := range []*client{concerned, other} {
			each.gets(t, plain, "key "+c.name+" foo", w)
		}
		concerned.gets(t, gatewayName, "key "+c.name+" gw", w)
		concerned.gets(t, twin, "CA ca of "+c.name+" gw", w)
		c.put("shop/gw", tlsOf(t, "rotated"))
		concerned.gets(t, gatewayName, "key rotated", w)
		concerned.gets(t, twin, "CA ca of rotated", w)
		// What comes after all that would have come of it.
		c.put("shop/foo", tlsOf(t, "after"))
		for _, each := range []*client{concerned, other} {
			each.gets(t, plain, "key after", w)
		}
		if got := concerned.since(0); !slices.Equal(got, []string{gatewayName, gatewayName, twin, twin, plain, plain}) {
			t.Errorf("of %s came %q", c.name, got)
		}
		if got := other.since(0); !slices.Equal(got, []string{plain, plain}) {
			t.Errorf("to whom nothing of it is, of %s came %q", c.name, got)
		}
		c.put("shop/gw", tlsOf(t, c.name+" gw"))
		c.put("shop/foo", tlsOf(t, c.name+" foo"))
		for _, each := range []*client{concerned, other} {
			each.gets(t, plain, "key "+c.name+" foo", w)
		}
		concerned.gets(t, gatewayName, "key "+c.name+" gw", w)
	}
}

// keepsAnswers: the API server is asked once for an account, be it allowed or not.
func (w *world) keepsAnswers(t *testing.T) {
	asked := func() (n string) {
		return w.metric(t, `countersign_discovery_access_reviews_total{answer="allowed"}`) + "/" + w.metric(t, `countersign_discovery_access_reviews_total{answer="denied"}`)
	}
	before := asked()
	for range 3 {
		w.comes(t, w.holder(t, "home/shop/gateway"), "delta", plain, gatewayName).gets(t, gatewayName, "key home gw", w)
		w.comes(t, w.holder(t, "home/shop/poor"), "delta", plain).gets(t, plain, "-", w)
	}
	if after := asked(); after != before || after == "/" {
		t.Errorf("reviews: %s, then %s", before, after)
	}
}

// loses: a kubeconfig that is exchanged has all rights of its cluster asked anew.
func (w *world) loses(t *testing.T, revoke func()) {
	c := w.comes(t, w.bearer(t, "east/shop/gateway"), "delta", gatewayName, twin, plain)
	c.gets(t, gatewayName, "key east gw", w)
	c.gets(t, plain, "key east foo", w)
	revoke()
	before := c.count()
	w.home.kubeconfigs("remotes", data{"east": w.east.kubeconfig()})
	c.gets(t, gatewayName, "-", w)
	c.gets(t, plain, "-", w)
	if got := c.since(before); !slices.Equal(got, []string{"-" + gatewayName, "-" + plain}) || c.of(twin) != "CA ca of east gw" {
		t.Errorf("%q; the CA is %s", got, c.of(twin))
	}
}

// losesAndRegains: when the yes has ended, who has lost the right has the secret no more,
// on a stream that goes on.
func (w *world) losesAndRegains(t *testing.T, revoke func()) {
	open := map[string]*client{}
	for protocol := range dialects {
		open[protocol] = w.comes(t, w.bearer(t, "home/shop/tenant"), protocol, plain, plain+"-cacert")
		open[protocol].gets(t, plain, "key home foo", w)
	}
	revoke()
	open["delta"].gets(t, plain, "-", w)
	w.home.put("shop/foo", tlsOf(t, "meanwhile"))
	for protocol, c := range open {
		c.gets(t, plain+"-cacert", "CA ca of meanwhile", w)
		if got := c.of(plain); got == "key meanwhile" {
			t.Errorf("without the right, it has the %s by %s", got, protocol)
		}
	}
	w.home.Bind(shop, "system:serviceaccount:shop:tenant", listSecrets)
	for _, c := range open {
		c.gets(t, plain, "key meanwhile", w)
	}
	silent(t, w)
}

// outlives: what is held is served on, old streams and new ones, and then followed again.
func (w *world) outlives(t *testing.T) {
	old := w.comes(t, w.holder(t, "home/shop/gateway"), "delta", gatewayName)
	old.gets(t, gatewayName, "key home gw", w)
	before := old.count()
	w.home.Stop()
	late := w.comes(t, w.bearer(t, "home/shop/gateway"), "delta", gatewayName, twin)
	late.gets(t, gatewayName, "key home gw", w)
	late.gets(t, twin, "CA ca of home gw", w)
	if code, why := w.page(t, "/readyz"); code != 200 {
		t.Errorf("not ready: %s", why)
	}
	w.home.Resume()
	w.home.put("shop/gw", tlsOf(t, "restored"))
	w.home.put("shop/foo", tlsOf(t, "restored"))
	for _, c := range []*client{old, late} {
		c.gets(t, gatewayName, "key restored", w)
	}
	if got := old.since(before); !slices.Equal(got, []string{gatewayName}) {
		t.Errorf("of an outage came %q", got)
	}
}
