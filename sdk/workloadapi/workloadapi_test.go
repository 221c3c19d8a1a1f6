package workloadapi_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// witness notes who asks.
type witness struct {
	*secrettest.Source
	mu      sync.Mutex
	callers map[secret.Caller]bool
}

func (w *witness) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	w.mu.Lock()
	w.callers[caller] = true
	w.mu.Unlock()
	return w.Source.Peek(caller, name)
}

func TestIdentitiesAndBundlesAreSentInDER(t *testing.T) {
	ours, theirs := catest.NewCA(catest.Options{Intermediates: 1}), catest.NewCA(catest.Options{})
	pair, outer := keyPair(t, ours, "default", "spiffe://example.org/web"), keyPair(t, ours, "outer", "spiffe://example.org/outer")
	source := &witness{Source: secrettest.New(pair, outer, bundle(ours, "ROOTCA"), bundle(theirs, "PARTNER")), callers: map[secret.Caller]bool{}}
	_, c := start(t, source, workloadapi.Config{Offer: workloadapi.Offer{
		Identities: []workloadapi.Identity{of("default", "internal"), of("outer", "external"), of("other", "others")},
		Federated:  map[string]string{"partner.example": "PARTNER", "gone.example": "GONE"},
	}})
	answer := c.svids().get()
	if len(answer.Svids) != 2 {
		t.Fatalf("%d identities", len(answer.Svids))
	}
	for i, want := range []struct{ id, hint string }{{"spiffe://example.org/web", "internal"}, {"spiffe://example.org/outer", "external"}} {
		svid := answer.Svids[i]
		if svid.SpiffeId != want.id || svid.Hint != want.hint {
			t.Errorf("identity %d is %s, %s", i, svid.SpiffeId, svid.Hint)
		}
		checkSVID(t, svid, ours)
	}
	if got := answer.FederatedBundles; len(got) != 1 || !bytes.Equal(got["spiffe://partner.example"], rootDER(theirs)) {
		t.Errorf("federated: %v", slices.Collect(maps.Keys(got)))
	}
	bundles := c.bundles().get().Bundles
	if len(bundles) != 2 || !bytes.Equal(bundles["spiffe://example.org"], rootDER(ours)) || !bytes.Equal(bundles["spiffe://partner.example"], rootDER(theirs)) {
		t.Errorf("bundles: %v", slices.Collect(maps.Keys(bundles)))
	}
	source.mu.Lock()
	defer source.mu.Unlock()
	for caller := range source.callers {
		if caller.PID != int32(os.Getpid()) || int(caller.UID) != os.Geteuid() {
			t.Errorf("the source was asked for %v", caller)
		}
	}
}

func checkSVID(t *testing.T, svid *workloadv1.X509SVID, authority *catest.CA) {
	t.Helper()
	chain, err := x509.ParseCertificates(svid.X509Svid)
	if err != nil || len(chain) != 2 || chain[0].URIs[0].String() != svid.SpiffeId {
		t.Fatalf("%d certificates, %v", len(chain), err)
	}
	key, err := x509.ParsePKCS8PrivateKey(svid.X509SvidKey)
	if err != nil || !pki.SameKey(key.(crypto.Signer).Public(), chain[0].PublicKey) {
		t.Errorf("the key is another: %v", err)
	}
	if !bytes.Equal(svid.Bundle, rootDER(authority)) {
		t.Error("the bundle is another")
	}
}

func rootDER(authority *catest.CA) []byte { return authority.Bundle().Certificates()[0].Raw }

func TestRevocationListsOfAllBundlesAreSentInDER(t *testing.T) {
	ours, theirs := catest.NewCA(catest.Options{Intermediates: 1}), catest.NewCA(catest.Options{})
	roots, partner := bundle(ours, "ROOTCA"), bundle(theirs, "PARTNER")
	roots.CRLs, partner.CRLs = slices.Concat(ours.CRLs(catest.CRL{})...), slices.Concat(theirs.CRLs(catest.CRL{})...)
	source := secrettest.New(keyPair(t, ours, "default", "spiffe://example.org/web"), keyPair(t, ours, "outer", "spiffe://example.org/outer"), roots, partner)
	_, c := start(t, source, workloadapi.Config{Offer: workloadapi.Offer{
		Identities: []workloadapi.Identity{of("default", ""), of("outer", "outer")}, Federated: map[string]string{"partner.example": "PARTNER"},
	}})
	for what, lists := range map[string][][]byte{"SVIDs": c.svids().get().Crl, "bundles": c.bundles().get().Crl} {
		if len(lists) != 3 {
			t.Errorf("%s: %d lists, want those of three CAs, each once", what, len(lists))
		}
		for _, list := range lists {
			if _, err := x509.ParseRevocationList(list); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

func TestOnlyRotationsArePushedAndWhole(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	source := secrettest.New(keyPair(t, authority, "default", "spiffe://example.org/web"), bundle(authority, "ROOTCA"))
	_, c := start(t, source, workloadapi.Config{})
	svids, bundles := c.svids(), c.bundles()
	first := svids.get()
	bundles.get()
	source.Notify() // a notice of nothing
	source.Put(keyPair(t, authority, "default", "spiffe://example.org/web"))
	second := svids.get()
	if bytes.Equal(first.Svids[0].X509Svid, second.Svids[0].X509Svid) || !bytes.Equal(first.Svids[0].Bundle, second.Svids[0].Bundle) {
		t.Error("what was pushed is not the rotation")
	}
	authority.Rotate()
	source.Put(bundle(authority, "ROOTCA"))
	if third := svids.get(); bytes.Equal(third.Svids[0].Bundle, first.Svids[0].Bundle) || len(third.Svids[0].X509SvidKey) == 0 {
		t.Error("the roots were not pushed with the rest")
	}
	if got := bundles.get().Bundles["spiffe://example.org"]; !bytes.Equal(got, rootDER(authority)) {
		t.Error("a bundle was pushed that is not new")
	}
}

func TestDefaultIdentityIsAwaitedAndOthersAdded(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	source := secrettest.New(keyPair(t, authority, "second", "spiffe://example.org/second"), bundle(authority, "ROOTCA"))
	source.Empty("first", "third")
	_, c := start(t, source, workloadapi.Config{Offer: workloadapi.Offer{
		Identities: []workloadapi.Identity{of("unknown", "u"), of("first", "1"), of("second", "2"), of("third", "3")},
	}})
	svids := c.svids()
	source.Put(keyPair(t, authority, "first", "spiffe://example.org/first"))
	if got := hints(svids.get()); got != "1 2" {
		t.Errorf("got %q", got)
	}
	source.Put(keyPair(t, authority, "third", "spiffe://example.org/third"))
	if got := hints(svids.get()); got != "1 2 3" {
		t.Errorf("got %q", got)
	}
}

func of(certificate, hint string) workloadapi.Identity {
	return workloadapi.Identity{Certificate: certificate, Roots: "ROOTCA", Hint: hint}
}

// Peers can be verified before the CA has signed.
func TestBundlesAreSentBeforeCertificate(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	source := secrettest.New(bundle(authority, "ROOTCA"))
	source.Empty("default")
	_, c := start(t, source, workloadapi.Config{Offer: workloadapi.Offer{
		Identities: []workloadapi.Identity{{Certificate: "default", Roots: "ROOTCA", TrustDomain: "example.org"}},
	}})
	svids, bundles := c.svids(), c.bundles()
	if got := bundles.get().Bundles["spiffe://example.org"]; !bytes.Equal(got, rootDER(authority)) {
		t.Errorf("%d bytes of roots", len(got))
	}
	source.Put(keyPair(t, authority, "default", "spiffe://example.org/web"))
	if got := svids.get().Svids; len(got) != 1 {
		t.Errorf("%d identities", len(got))
	}
	authority.Rotate()
	source.Put(bundle(authority, "ROOTCA"))
	if got := bundles.get().Bundles["spiffe://example.org"]; !bytes.Equal(got, rootDER(authority)) {
		t.Error("the certificate alone was a change of the bundle")
	}
}

func hints(answer *workloadv1.X509SVIDResponse) string {
	var all []string
	for _, svid := range answer.Svids {
		all = append(all, svid.Hint)
	}
	return strings.Join(all, " ")
}

func TestCertificateWithoutSPIFFEIDIsSkippedAndLogged(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	pair := keyPair(t, authority, "names", "", "web.example.org")
	source := secrettest.New(pair, keyPair(t, authority, "default", "spiffe://example.org/web"), bundle(authority, "ROOTCA"))
	var log logtest.Log
	_, c := start(t, source, workloadapi.Config{
		Offer: workloadapi.Offer{Identities: []workloadapi.Identity{of("names", "n"), of("default", "d")}},
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	for range 3 {
		if got := hints(c.svids().get()); got != "d" {
			t.Errorf("got %q", got)
		}
	}
	if n := strings.Count(log.String(), "omitted from the Workload API"); n != 1 || strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

func TestForeignBundleOfOwnTrustDomainIsNotSent(t *testing.T) {
	ours, theirs := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	source := secrettest.New(keyPair(t, ours, "default", "spiffe://example.org/web"), bundle(ours, "ROOTCA"), bundle(theirs, "PARTNER"))
	_, c := start(t, source, workloadapi.Config{Offer: workloadapi.Offer{Federated: map[string]string{"example.org": "PARTNER"}}})
	if got := c.svids().get().FederatedBundles; len(got) != 0 {
		t.Error("it was sent")
	}
	if got := c.bundles().get().Bundles["spiffe://example.org"]; !bytes.Equal(got, rootDER(ours)) {
		t.Error("it took the place of the right one")
	}
}

func TestWrongSettingsAreRefusedBeforeListening(t *testing.T) {
	for want, cfg := range map[string]workloadapi.Config{
		"Config.Path is empty":       {},
		"needs a Certificate":        {Path: "x", Offer: workloadapi.Offer{Identities: []workloadapi.Identity{{Certificate: "default"}}}},
		`hint "a" is there twice`:    {Path: "x", Offer: workloadapi.Offer{Identities: []workloadapi.Identity{of("a", "a"), of("b", "a")}}},
		`"Example.com" is not valid`: {Path: "x", Offer: workloadapi.Offer{Federated: map[string]string{"Example.com": "R"}}},
		"name a trust bundle":        {Path: "x", Offer: workloadapi.Offer{Federated: map[string]string{"example.com": ""}}},
	} {
		if cfg.Path != "" {
			cfg.Path = t.TempDir() + "/socket"
		}
		if _, err := workloadapi.Listen(cfg, secrettest.New()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if _, err := os.Lstat(cfg.Path); err == nil {
			t.Error("a socket was taken")
		}
	}
	if _, err := workloadapi.NewService(workloadapi.ServiceConfig{Secrets: secrettest.New()}); err == nil {
		t.Error("a service that admits no caller was made")
	}
}
