package tlsconfig_test

import (
	"crypto/tls"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// A recorded conversation must stay unreadable for a future quantum computer.
func TestKeyExchangeIsPostQuantum(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	m := meet(t, server(t, web.options()), client(t, app.options()))
	if m.err() != nil || m.client.CurveID != tls.X25519MLKEM768 || m.server.CurveID != tls.X25519MLKEM768 {
		t.Errorf("the key exchange is %s and %s, %v", m.client.CurveID, m.server.CurveID, m.err())
	}
}

func needMLDSA(t *testing.T) {
	t.Helper()
	if _, err := pki.ParseKeyType(string(pki.MLDSA44)); err != nil {
		t.Skip(err)
	}
}

func TestPartiesOfAnyKeyTypesMeetBelowMLDSA(t *testing.T) {
	needMLDSA(t)
	for _, above := range []pki.KeyType{pki.MLDSA44, pki.MLDSA65, pki.MLDSA87} {
		authority := catest.NewCA(catest.Options{KeyType: above, Intermediates: 1})
		web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
		s, c := server(t, web.options()), client(t, app.options())
		for _, own := range []pki.KeyType{pki.MLDSA44, pki.MLDSA65, pki.MLDSA87, pki.ECDSAP256, pki.Ed25519} {
			web.keyType = own
			web.renew(authority)
			m := meet(t, s, c)
			if m.err() != nil {
				t.Fatalf("%s below %s: %v", own, above, m.err())
			}
			if got := pki.KeyTypeOf(m.client.PeerCertificates[0].PublicKey); got != own {
				t.Errorf("the server showed a key of %s, not %s", got, own)
			}
		}
	}
}

// One side after the other gets both roots, then a certificate below the new one, then the new
// root alone.
func TestMoveFromECDSAToMLDSACostsNoHandshake(t *testing.T) {
	needMLDSA(t)
	old, next := catest.NewCA(catest.Options{}), catest.NewCA(catest.Options{KeyType: pki.MLDSA65})
	web, app := newParty(t, old, "spiffe://example.org/web"), newParty(t, old, "spiffe://example.org/app")
	s, c := server(t, web.options()), client(t, app.options())
	both := old.Bundle().Union(next.Bundle())
	for _, step := range []func(*party){
		func(p *party) { p.trust(both) },
		func(p *party) { p.keyType = pki.MLDSA44; p.renew(next) },
		func(p *party) { p.trust(next.Bundle()) },
	} {
		for _, p := range []*party{web, app} {
			step(p)
			for range 2 { // the second may resume a session
				if m := meet(t, s, c); m.err() != nil {
					t.Fatal(m.err())
				}
			}
		}
	}
	if m := meet(t, s, c); pki.KeyTypeOf(m.server.PeerCertificates[0].PublicKey) != pki.MLDSA44 {
		t.Error("the client does not show its new key")
	}
}
