package tlsconfig_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// trustWith has the party check peers against the lists.
func (p *party) trustWith(version string, roots *pki.Bundle, lists ...[]byte) {
	item := bundleItem(roots)
	item.CRLs, item.Version = bytes.Join(lists, nil), version
	p.Put(item)
}

// serialNumber is that of its certificate.
func (p *party) serialNumber() *big.Int {
	n, _ := new(big.Int).SetString(p.serial(), 16)
	return n
}

// It resumes no session either: a ticket is of one version of the bundle.
func TestRevokedPeerIsRefusedFromNextHandshakeOn(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	web, app, other := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app"), newParty(t, authority, "spiffe://example.org/other")
	web.trustWith("1", authority.Bundle(), authority.CRLs(catest.CRL{Number: 1})...)
	s, c, o := server(t, web.options()), client(t, app.options()), client(t, other.options())
	for range 2 { // the second time, the peer is known
		if m := meet(t, s, c); m.err() != nil {
			t.Fatal(m.err())
		}
	}
	web.trustWith("2", authority.Bundle(), authority.CRLs(catest.CRL{Number: 2, Revoked: []*big.Int{app.serialNumber()}})...)
	if m := meet(t, s, c); !errors.Is(m.serverErr, tlsconfig.ErrRevoked) || !errors.Is(m.serverErr, pki.ErrRevoked) {
		t.Errorf("got %v", m.serverErr)
	}
	if m := meet(t, s, o); m.err() != nil {
		t.Errorf("a peer beside the revoked one: %v", m.err())
	}
	app.renew(authority)
	if m := meet(t, s, c); m.err() != nil {
		t.Errorf("with a new certificate: %v", m.err())
	}
}

func TestPeerOfCAWithoutListIsRefused(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	web.trustWith("1", authority.Bundle(), authority.CRLs(catest.CRL{})[1])
	if m := meet(t, server(t, web.options()), client(t, app.options())); !errors.Is(m.serverErr, pki.ErrNoCRL) {
		t.Errorf("got %v", m.serverErr)
	}
}

func TestPeerIsRefusedOnceListHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
		web.trustWith("1", authority.Bundle(), authority.CRLs(catest.CRL{})...)
		v, err := tlsconfig.NewVerifier(web.options())
		if err != nil {
			t.Fatal(err)
		}
		state := stateOf(t, app)
		if err := v.VerifyConnection(state); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second)
		if err := v.VerifyConnection(state); !errors.Is(err, pki.ErrNoCRL) {
			t.Errorf("got %v", err)
		}
	})
}

// stateOf is a connection to the party.
func stateOf(t *testing.T, p *party) tls.ConnectionState {
	t.Helper()
	certs, err := pki.ParseCertificates(p.Items()["default"].Chain)
	if err != nil {
		t.Fatal(err)
	}
	return tls.ConnectionState{PeerCertificates: certs}
}
