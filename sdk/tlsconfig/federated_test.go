package tlsconfig_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// partners makes a party that trusts the roots of its own domain and of a partner's.
func partners(t *testing.T, own, partner *catest.CA) (*party, tlsconfig.Options) {
	t.Helper()
	web := newParty(t, own, "spiffe://example.org/web")
	web.Put(bundleNamed("partner", partner.Bundle()))
	o := web.options()
	o.Peer = tlsconfig.TrustDomain("example.org", "partner.example")
	o.Federated = map[string]string{"partner.example": "partner"}
	return web, o
}

func bundleNamed(name string, roots *pki.Bundle) *secret.Item {
	item := bundleItem(roots)
	item.Name = name
	return item
}

func TestEachTrustDomainVerifiesItsOwnPeers(t *testing.T) {
	own, partner := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	_, o := partners(t, own, partner)
	verifier, err := tlsconfig.NewVerifier(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		by   *catest.CA
		id   string
		good bool
	}{
		"its own":                        {own, "spiffe://example.org/app", true},
		"the partner's":                  {partner, "spiffe://partner.example/app", true},
		"the partner's name, by its own": {own, "spiffe://partner.example/app", false},
		"its own name, by the partner":   {partner, "spiffe://example.org/app", false},
	} {
		item := newParty(t, c.by, c.id).Items()["default"]
		chain, err := pki.ParseCertificates(item.Chain)
		if err != nil {
			t.Fatal(err)
		}
		err = verifier.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{chain[0]}})
		if c.good && err != nil || !c.good && !errors.Is(err, tlsconfig.ErrUntrusted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChangedPartnerRootsEndSessions(t *testing.T) {
	own, partner := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{})
	web, o := partners(t, own, partner)
	app := newParty(t, partner, "spiffe://partner.example/app")
	theirs := app.options()
	theirs.Peer, theirs.Sessions = tlsconfig.TrustDomain("example.org"), 10
	theirs.Federated = map[string]string{"example.org": "other"}
	app.Put(bundleNamed("other", own.Bundle()))
	s, c := server(t, o), client(t, theirs)
	for _, resumed := range []bool{false, true} {
		if m := meet(t, s, c); m.err() != nil || m.client.DidResume != resumed {
			t.Fatalf("resumed %v: %v", m.client.DidResume, m.err())
		}
	}
	web.Put(bundleNamed("partner", partner.Bundle().Union(catest.NewCA(catest.Options{}).Bundle())))
	if m := meet(t, s, c); m.err() != nil || m.client.DidResume {
		t.Errorf("resumed %v: %v", m.client.DidResume, m.err())
	}
}

func TestInvalidFederatedDomainIsRefused(t *testing.T) {
	_, o := partners(t, catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{}))
	o.Federated = map[string]string{"Not A Domain": "partner"}
	if _, err := tlsconfig.NewVerifier(o); err == nil {
		t.Error("it was taken")
	}
}
