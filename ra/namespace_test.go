package ra_test

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// shop is a namespace, and apps a rule that grants one nothing but what it asks for.
func shop() ra.Subject { return ra.Subject{Kind: ra.Namespace, Cluster: "home", Namespace: "shop"} }

func apps() ra.Rule {
	return ra.Rule{Name: "apps", Authority: "ca", Names: ra.Names{Requested: []string{"*.{namespace}.apps.example.org"}}}
}

// asks is a request of the namespace for names, with the key of that number.
func asks(key int, names ...string) ra.Request {
	return ra.Request{Subject: shop(), Door: istio, CSR: csr(key, &x509.CertificateRequest{DNSNames: names}), DNSNames: names}
}

func TestRuleOfRequestedNamesAloneGrantsNoOther(t *testing.T) {
	inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, apps()) }, func(h *house) {
		if got := h.must(asks(0, "a.shop.apps.example.org")).Identity.Names(); !slices.Equal(got, []string{"a.shop.apps.example.org"}) {
			t.Errorf("issued to %q", got)
		}
		if err := h.refused(asks(1), ca.ErrDenied); !ra.Refused(err) || !errors.Is(err, ra.ErrNames) {
			t.Errorf("%v is not about the names", err)
		}
		d := h.Try(shop(), istio)
		if said := d.Explain(); d.Denied != "" || strings.Contains(said, "granted:") || !strings.Contains(said, "granted if asked for: *.{namespace}.apps.example.org\n") {
			t.Errorf("explained as\n%s", said)
		}
	})
}

func TestNamespaceNeedsItsName(t *testing.T) {
	s := shop()
	s.Namespace = ""
	if d := policy(t, ra.Rule{Name: "all", Authority: "ca", Names: ra.Names{DNSNames: []string{"a.example.org"}}}).Try(s, istio); !strings.Contains(d.Denied, "needs its namespace") {
		t.Errorf("%+v", d)
	}
}

// The certificates of a namespace are of different holders: one that uses up its budget keeps no
// other from its certificate, and a new key does not make a new holder.
func TestCertificatesOfANamespaceHaveBudgetsByTheirNames(t *testing.T) {
	inBubble(t, func(conf *ra.Config) {
		conf.Policy, conf.Budget = policy(t, apps()), ra.Budget{Holder: 1, HolderEvery: time.Hour}
	}, func(h *house) {
		h.must(asks(0, "a.shop.apps.example.org"))
		h.refused(asks(1, "a.shop.apps.example.org"), ca.ErrRateLimited)
		h.must(asks(2, "b.shop.apps.example.org"))
	})
}

// A namespace that chooses its names does not choose its budget.
func TestNamesShareTheBudgetOfTheirNamespace(t *testing.T) {
	inBubble(t, func(conf *ra.Config) {
		rule := apps()
		rule.Holders = 2
		conf.Policy, conf.Budget = policy(t, rule), ra.Budget{Holder: 1, HolderEvery: time.Hour}
	}, func(h *house) {
		h.must(asks(0, "a.shop.apps.example.org"))
		h.must(asks(1, "b.shop.apps.example.org"))
		h.refused(asks(2, "c.shop.apps.example.org"), ca.ErrRateLimited)
		time.Sleep(30 * time.Minute)
		h.must(asks(3, "c.shop.apps.example.org"))
	})
}
