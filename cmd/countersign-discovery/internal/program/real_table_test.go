//go:build e2e && linux

package program

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// filled has the clusters home and east with what the table is about: accounts that may and
// may not, and secrets that are called after where they are.
func filled(t *testing.T) (home, east realm) {
	t.Helper()
	home, east = newRealm(t, kubetest.Options{Name: "home"}), newRealm(t, kubetest.Options{Name: "east"})
	for _, c := range []realm{home, east} {
		for _, name := range []string{"web", "gateway"} {
			c.account(shop, name, true)
		}
		c.account(shop, "poor", false)
		c.account(bank, "web", true)
		c.put("shop/foo", tlsOf(t, c.name+" foo"))
		c.put("shop/only-"+c.name, tlsOf(t, c.name+" only"))
		c.put("bank/safe", tlsOf(t, c.name+" safe"))
		c.putMap("bank/roots", map[string]string{"ca.crt": string(fresh(t, c.name+" roots").PEM())})
	}
	layouts(t, home)
	return home, east
}

// layouts are the ways in which a secret may be laid out, and some that are none.
func layouts(t *testing.T, c realm) {
	t.Helper()
	c.put("shop/generic", merged(pairOf(t, "generic", "cert", "key"), caOf(t, "generic ca", "cacert", "crl")))
	c.put("shop/tls", merged(pairOf(t, "tls", "tls.crt", "tls.key"), caOf(t, "tls ca", "ca.crt", "ca.crl"), data{"tls.ocsp-staple": staple(t)}))
	c.put("shop/both", merged(pairOf(t, "first", "cert", "key"), pairOf(t, "second", "tls.crt", "tls.key"),
		caOf(t, "first ca", "cacert", "crl"), caOf(t, "second ca", "ca.crt", "ca.crl")))
	c.put("shop/split", tlsOf(t, "split"))
	// It bears a key, too: that must never be had as a CA.
	c.put("shop/split-cacert", merged(pairOf(t, "trap", "tls.crt", "tls.key"), data{"cacert": fresh(t, "very ca").PEM()}))
	c.put("shop/trap-cacert", pairOf(t, "trap", "tls.crt", "tls.key"))
	c.put("shop/no-ca", pairOf(t, "no ca", "tls.crt", "tls.key"))
	c.put("shop/torn", merged(pairOf(t, "torn", "tls.crt", "x"), pairOf(t, "other", "x", "tls.key")))
	old := issue(t, "old", time.Now().Add(-time.Hour))
	c.put("shop/old", data{"tls.crt": old.PEM(), "tls.key": old.KeyPEM(t)})
}

// table is what each caller has of each name; "-" is nothing.
var table = map[string]map[string]string{
	"home/shop/web": {
		"kubernetes://foo": "key home foo", "kubernetes://shop/foo": "key home foo", "kubernetes-gateway://shop/foo": "key home foo",
		"kubernetes://foo-cacert": "CA ca of home foo", "kubernetes-gateway://shop/foo-cacert": "CA ca of home foo",
		"configmap://bank/roots": "CA home roots",
		// Another namespace is refused, and so is what is no name.
		"kubernetes://bank/safe": "-", "kubernetes://bank/safe-cacert": "-", "kubernetes-gateway://bank/safe": "-", "kubernetes-gateway://bank/safe-cacert": "-",
		"kubernetes-gateway://foo": "-", "configmap://roots": "-", "kubernetes://shop/../bank/safe": "-", "kubernetes://Foo": "-", "vault://foo": "-", "kubernetes://none": "-",
		// The layouts, and the twin with -cacert: the very secret first, and never a key.
		"kubernetes://generic": "key generic", "kubernetes://generic-cacert": "CA generic ca +CRL",
		"kubernetes://tls": "key tls +staple", "kubernetes://tls-cacert": "CA tls ca +CRL",
		"kubernetes://both": "key first", "kubernetes://both-cacert": "CA first ca +CRL",
		"kubernetes://split": "key split", "kubernetes://split-cacert": "CA very ca",
		"kubernetes://trap-cacert": "-", "kubernetes-gateway://shop/trap-cacert": "-", "kubernetes://no-ca-cacert": "-",
		// One bad object costs no other, and what has expired is served.
		"kubernetes://torn": "-", "kubernetes://old": "key old",
		// Nothing comes from a remote cluster into this one.
		"kubernetes://only-east": "-",
	},
	"home/shop/poor": {
		"kubernetes://foo": "-", "kubernetes-gateway://shop/foo": "-", "kubernetes://none": "-",
		"kubernetes://foo-cacert": "CA ca of home foo", "configmap://bank/roots": "CA home roots", "kubernetes://trap-cacert": "-",
	},
	"home/bank/web": {"kubernetes://safe": "key home safe", "kubernetes://foo": "-", "kubernetes-gateway://shop/foo": "-"},
	"east/shop/web": {
		"kubernetes://foo": "key east foo", "kubernetes://foo-cacert": "CA ca of east foo", "kubernetes://only-east": "key east only",
		"kubernetes://only-home": "-", "kubernetes://only-home-cacert": "-", "kubernetes-gateway://shop/only-home": "-", "configmap://bank/roots": "CA east roots",
	},
	"east/shop/poor":    {"kubernetes://foo": "-", "kubernetes://foo-cacert": "CA ca of east foo"},
	"east/shop/gateway": {"kubernetes-gateway://bank/safe": "-", "kubernetes://bank/safe": "-", "kubernetes://foo": "key east foo"},
}

// trusting is what is different where the config says so.
var trusting = map[string]map[string]string{
	"home/shop/web": {"kubernetes://only-east": "-", "kubernetes-gateway://bank/safe": "-", "kubernetes://foo": "key home foo"},
	"east/shop/web": {
		"kubernetes://foo": "key east foo", "kubernetes://only-home": "key home only", "kubernetes://only-home-cacert": "CA ca of home only",
		"kubernetes-gateway://bank/safe": "-",
	},
	"east/shop/poor": {"kubernetes://only-home": "-", "kubernetes://only-home-cacert": "CA ca of home only"},
	"east/shop/gateway": {
		"kubernetes-gateway://bank/safe": "key east safe", "kubernetes-gateway://bank/safe-cacert": "CA ca of east safe",
		"kubernetes://bank/safe": "-", "kubernetes-gateway://bank/other": "-",
	},
}

const eastTrusted = `secrets:
  may_read_config_cluster: [east]
  grants: [{to: {trust_domain: '*', cluster: east, namespace: shop, service_account: gateway}, namespace: bank, names: [safe]}]
`

func TestRealTable(t *testing.T) {
	home, east := filled(t)
	home.kubeconfigs("remotes", data{"east": east.kubeconfig()})
	t.Run("as it comes", func(t *testing.T) {
		w := serveReal(t, home, east, atOnce)
		w.becomes(t, "east", "is synced", synced)
		w.holds(t, table)
		// It was warned of once, whoever asked, and counted.
		if w.log.await(t, `(serving an expired certificate" cluster=home namespace=shop name=old)`); w.metric(t, "countersign_discovery_expired_secrets_total") != "1" {
			t.Errorf("expired: %q", w.metric(t, "countersign_discovery_expired_secrets_total"))
		}
		for _, reason := range []string{"namespace", "rights", "name", "missing", "malformed"} {
			if n := w.metric(t, `countersign_discovery_refused_secrets_total{reason="`+reason+`"}`); n == "" || n == "0" {
				t.Errorf("refused for %s: %q", reason, n)
			}
		}
		w.log.await(t, `(secret refused" resource=\S+ caller=\S+ cluster=home reason=)`)
		w.log.await(t, "(malformed secret, not serving it\" cluster=home namespace=shop name=torn)")
		silent(t, w)
	})
	t.Run("as east is trusted", func(t *testing.T) {
		w := serveReal(t, home, east, atOnce+eastTrusted)
		w.becomes(t, "east", "is synced", synced)
		w.holds(t, trusting)
	})
}

// holds asks for all of a table, by both credentials and both protocols.
func (w *world) holds(t *testing.T, table map[string]map[string]string) {
	t.Helper()
	for who, rows := range table {
		for credential, v := range w.visitors(t, who) {
			for protocol := range dialects {
				t.Run(who+" by "+credential+", "+protocol, func(t *testing.T) {
					c := w.comes(t, v, protocol, slices.Sorted(maps.Keys(rows))...)
					w.check(t, c, protocol, rows)
				})
			}
		}
	}
}

// check waits for what is to come. The state of the world does not say what is not to be
// had: it must not be there when all else is.
func (w *world) check(t *testing.T, c *client, protocol string, rows map[string]string) {
	t.Helper()
	for name, want := range rows {
		if want != "-" || protocol == "delta" {
			c.gets(t, name, want, w)
		}
	}
	for name, want := range rows {
		if want == "-" && strings.Trim(c.of(name), "-") != "" {
			t.Errorf("%s is %s", name, c.of(name))
		}
	}
}

// visitors are CLUSTER/NAMESPACE/ACCOUNT with a certificate, and with a token.
func (w *world) visitors(t *testing.T, who string) map[string]visitor {
	t.Helper()
	return map[string]visitor{"certificate": w.bearer(t, who), "token": w.holder(t, who)}
}

// bearer shows a certificate.
func (w *world) bearer(t *testing.T, who string) visitor {
	t.Helper()
	words := strings.Split(who, "/")
	domain := map[string]string{"home": "cluster.local", "east": "east.test"}[words[0]]
	return visitor{tls: w.shows(t, w.signs[words[0]], time.Hour, "spiffe://"+domain+"/ns/"+words[1]+"/sa/"+words[2])}
}

// holder has a token for the audience of the service.
func (w *world) holder(t *testing.T, who string) visitor {
	t.Helper()
	words := strings.Split(who, "/")
	of := map[string]realm{"home": w.home, "east": w.east}[words[0]]
	v := visitor{tls: w.signs["home"].client(t, ""), token: of.Token(words[1], words[2], "istio-ca")}
	if words[0] != "home" {
		v.cluster = words[0]
	}
	return v
}

// silent looks for keys and tokens where none may be.
func silent(t *testing.T, w *world) {
	t.Helper()
	_, page := w.page(t, "/status.json")
	for where, text := range map[string]string{"the log": w.log.String(), "the page": page} {
		for _, secret := range []string{"PRIVATE KEY", "eyJ", "Bearer"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q", where, secret)
			}
		}
	}
}
