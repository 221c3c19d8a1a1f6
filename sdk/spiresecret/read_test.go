package spiresecret_test

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

const api2 = "spiffe://example.org/api"

func TestEachSecretSelectsItsOwn(t *testing.T) {
	pair := func(s spiresecret.Spec) spiresecret.Spec { s.Name, s.Kind = "default", secret.KeyPair; return s }
	for name, c := range map[string]struct {
		spec spiresecret.Spec
		want int // of the X.509-SVIDs; -1: none
		said string
	}{
		"first":            {spiresecret.Spec{}, 0, ""},
		"id":               {spiresecret.Spec{SPIFFEID: api2}, 1, ""},
		"hint":             {spiresecret.Spec{Hint: "internal"}, 1, ""},
		"id-and-hint":      {spiresecret.Spec{SPIFFEID: api2, Hint: "external"}, 2, ""},
		"id-of-nobody":     {spiresecret.Spec{SPIFFEID: "spiffe://example.org/none"}, -1, api2},
		"hint-of-nobody":   {spiresecret.Spec{Hint: "none"}, -1, "internal"},
		"id-or-hint-wrong": {spiresecret.Spec{SPIFFEID: web, Hint: "internal"}, -1, web},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := of(t, certtest.Root(t), web, api2, api2)
				sent.Svids[1].Hint, sent.Svids[2].Hint = "internal", "external"
				r := reading(t, sending(t, sent), pair(c.spec))
				if c.want >= 0 {
					r.serves(sent.Svids[c.want].X509Svid)
					return
				}
				r.fails("default", secret.ErrNotReady)
				if reason, text := r.fault("default"); reason != "denied" || !strings.Contains(text, c.said) {
					t.Errorf("%s: %s", reason, text)
				}
			})
		})
	}
}

func TestTrustBundlesAreSelectedByTrustDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, foreign := certtest.Root(t), certtest.Root(t)
		sent := of(t, own, web)
		sent.FederatedBundles = map[string][]byte{"spiffe://example.com": der(foreign)}
		from := sending(t, sent)
		bundle := func(name, trustDomain string) spiresecret.Spec {
			return spiresecret.Spec{Name: name, Kind: secret.TrustBundle, TrustDomain: trustDomain}
		}
		r := reading(t, from, bundle("own", "example.org"), bundle("foreign", "example.com"), bundle("none", "example.net"))
		for name, root := range map[string]*certtest.Pair{"own": own, "foreign": foreign} {
			if got, err := pki.ParseBundle(r.held(name).Roots); err != nil || !got.Equal(pki.NewBundle(root.Cert)) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		r.fails("none", secret.ErrNotReady)
		if reason, _ := r.fault("none"); reason != "denied" {
			t.Errorf("the reason is %q", reason)
		}
		// A federation that ends takes no trust away from what is held: a reload does.
		from.send(of(t, own, web))
		pass(time.Second)
		r.held("foreign")
		if reason, _ := r.fault("foreign"); reason != "denied" {
			t.Errorf("the reason is %q", reason)
		}
	})
}

func TestChangedIdentityIsReportedOrRefused(t *testing.T) {
	for name, spec := range map[string]spiresecret.Spec{"any": {}, "one": {SPIFFEID: web}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := certtest.Root(t)
				first, second := of(t, root, web), of(t, root, api2)
				from := sending(t, first)
				spec.Name, spec.Kind = "default", secret.KeyPair
				r := reading(t, from, spec)
				from.send(second)
				pass(time.Second)
				if name == "one" {
					r.serves(first.Svids[0].X509Svid)
					return
				}
				r.serves(second.Svids[0].X509Svid)
				if r.count(secret.NameDiffers, "default") != 1 {
					t.Error("no notice was sent")
				}
			})
		})
	}
}

func TestBadReplyKeepsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*testing.T, *certtest.Pair, *reply)
		check string
	}{
		"no-svid":          {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids = nil }, "denied"},
		"too-many-svids":   {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids = slices.Repeat(r.Svids, 1001) }, "format"},
		"no-certificate":   {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].X509Svid = nil }, "format"},
		"garbage":          {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].X509Svid = []byte("garbage") }, "format"},
		"half-certificate": {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].X509Svid = r.Svids[0].X509Svid[:200] }, "format"},
		"trailing-bytes":   {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].X509Svid = append(r.Svids[0].X509Svid, 0) }, "format"},
		"pem": {func(_ *testing.T, _ *certtest.Pair, r *reply) {
			r.Svids[0].X509Svid = []byte("-----BEGIN CERTIFICATE-----")
		}, "format"},
		"long-chain": {func(_ *testing.T, _ *certtest.Pair, r *reply) {
			r.Svids[0].X509Svid = slices.Repeat(r.Svids[0].X509Svid, 11)
		}, "format"},
		"no-key":      {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].X509SvidKey = nil }, "key"},
		"garbage-key": {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].X509SvidKey = make([]byte, 1<<20) }, "key"},
		"other-key": {func(t *testing.T, root *certtest.Pair, r *reply) {
			r.Svids[0].X509SvidKey = of(t, root, web).Svids[0].X509SvidKey
		}, "key"},
		"other-id": {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].SpiffeId = api2 }, "names"},
		"no-id": {func(t *testing.T, root *certtest.Pair, r *reply) {
			r.Svids[0] = svid(t, web, root, root.Leaf(t, time.Hour))
		}, "names"},
		"two-ids": {func(t *testing.T, root *certtest.Pair, r *reply) {
			r.Svids[0] = svid(t, web, root, root.Leaf(t, time.Hour, web, api2))
		}, "names"},
		"expired": {func(t *testing.T, root *certtest.Pair, r *reply) {
			r.Svids[0] = svid(t, web, root, root.Leaf(t, -time.Second, web))
		}, "expired"},
		"is-a-ca":   {asCA, "ca"},
		"no-bundle": {func(_ *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].Bundle = nil }, "roots"},
		"leaf-as-bundle": {func(t *testing.T, root *certtest.Pair, r *reply) {
			r.Svids[0].Bundle = der(root.Leaf(t, time.Hour, web))
		}, "roots"},
		"huge-bundle":      {func(_ *testing.T, root *certtest.Pair, r *reply) { r.Svids[0].Bundle = slices.Repeat(der(root), 1001) }, "roots"},
		"expired-root":     {expiredRoot, "roots"},
		"under-other-root": {func(t *testing.T, _ *certtest.Pair, r *reply) { r.Svids[0].Bundle = der(certtest.Root(t)) }, "chain"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := certtest.Root(t)
				good, bad := of(t, root, web), of(t, root, web)
				c.spoil(t, root, bad)
				from := sending(t, good)
				r := reading(t, from)
				for range 2 { // within a second: the text may have the time
					from.send(bad)
					pass(200 * time.Millisecond)
				}
				r.serves(good.Svids[0].X509Svid)
				if reason, text := r.fault("default"); reason != c.check {
					t.Errorf("%s: %s", reason, text)
				}
				if n := r.count(secret.Failed, "default"); n != 1 {
					t.Errorf("%d failures were notified", n)
				}
				next := of(t, root, web)
				from.send(next)
				pass(time.Second)
				r.serves(next.Svids[0].X509Svid)
				if reason, text := r.fault("default"); reason != "" {
					t.Errorf("%s: %s", reason, text)
				}
			})
		})
	}
}

// One that cannot be used does not keep a new root from arriving.
func TestUselessRootOfBundleIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, next := certtest.Root(t), certtest.Root(t)
		first := of(t, root, web)
		first.Svids[0].Bundle = append([]byte{0x30, 0}, der(root, root.Leaf(t, time.Hour, web), next)...)
		r := reading(t, sending(t, first))
		r.serves(first.Svids[0].X509Svid)
		if got := r.held("ROOTCA").RootFingerprints; !sameSet(got, pki.NewBundle(root.Cert, next.Cert).Fingerprints()) {
			t.Errorf("the roots are %q", got)
		}
		if n := strings.Count(r.log.String(), "certificate 1 is malformed"); n != 2 { // "default", "ROOTCA"
			t.Errorf("it was logged %d times\n%s", n, r.log)
		}
	})
}

func asCA(t *testing.T, root *certtest.Pair, r *reply) {
	t.Helper()
	template := certtest.Leaf(t, time.Hour, web)
	template.IsCA, template.KeyUsage = true, x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign
	r.Svids[0] = svid(t, web, root, root.Issue(t, template))
}

func expiredRoot(t *testing.T, _ *certtest.Pair, r *reply) {
	t.Helper()
	template := *certtest.Root(t).Cert
	template.SerialNumber, template.PublicKey, template.NotAfter = nil, nil, time.Now().Add(-time.Second)
	root := certtest.SelfSigned(t, &template)
	r.Svids[0] = svid(t, web, root, root.Leaf(t, time.Hour, web))
}

func TestWrongConfigurationIsRefused(t *testing.T) {
	pair, bundle := secret.KeyPair, secret.TrustBundle
	for name, specs := range map[string][]spiresecret.Spec{
		"no name":          {{Kind: pair}},
		"neither":          {{Name: "a"}},
		"twice":            {{Name: "a", Kind: pair}, {Name: "a", Kind: pair}},
		"SPIFFE ID":        {{Name: "a", Kind: pair, SPIFFEID: "web"}},
		"trust domain":     {{Name: "a", Kind: bundle, TrustDomain: "Example"}},
		"not by trust dom": {{Name: "a", Kind: pair, TrustDomain: "example.org"}},
		"by trust domain,": {{Name: "a", Kind: bundle, TrustDomain: "example.org", Hint: "internal"}},
	} {
		if s, err := spiresecret.New(spiresecret.Config{Socket: "socket", Secrets: specs}); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) {
			t.Errorf("%s: %v", name, err)
			if s != nil {
				s.Close()
			}
		}
	}
	for _, socket := range []string{"", "tcp://127.0.0.1:1"} {
		if _, err := spiresecret.New(spiresecret.Config{Socket: socket}); err == nil {
			t.Errorf("the socket %q is accepted", socket)
		}
	}
}

// sameSet compares without the order, which is that of random serial numbers.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
