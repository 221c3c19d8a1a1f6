package tlsconfig_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

func TestCertificateAndRootsFollowEachRotation(t *testing.T) {
	authority := catest.NewCA(catest.Options{Intermediates: 1})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	s, c := server(t, web.options()), client(t, app.options())
	for round := range 3 {
		m := meet(t, s, c)
		if m.err() != nil {
			t.Fatalf("round %d: %v", round, m.err())
		}
		if m.client.Version != tls.VersionTLS13 {
			t.Errorf("version %x", m.client.Version)
		}
		if server, client := m.serials(); server != web.serial() || client != app.serial() {
			t.Errorf("round %d: the certificates are not those held", round)
		}
		authority.Rotate() // the old root is not trusted any more
		for _, p := range []*party{web, app} {
			p.renew(authority)
			p.trust(authority.Bundle())
		}
	}
}

func TestPeerUnderDroppedRootIsRefused(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	s, c := server(t, web.options()), client(t, app.options())
	if m := meet(t, s, c); m.err() != nil {
		t.Fatal(m.err())
	}
	web.trust(catest.NewCA(catest.Options{}).Bundle())
	if m := meet(t, s, c); !errors.Is(m.serverErr, tlsconfig.ErrUntrusted) {
		t.Errorf("got %v", m.serverErr)
	}
}

func TestOnlyAuthorizedPeersAreAdmitted(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	app := newParty(t, authority, "spiffe://example.org/app")
	own := errors.New("not on Sundays")
	for name, c := range map[string]struct {
		peer tlsconfig.Authorizer
		id   string
		dns  []string
		want error // nil: admitted
		text string
	}{
		"the ID":              {tlsconfig.SPIFFEID("spiffe://example.org/web"), "spiffe://example.org/web", nil, nil, ""},
		"one of two IDs":      {tlsconfig.SPIFFEID("spiffe://a.org/x", "spiffe://example.org/web"), "spiffe://example.org/web", nil, nil, ""},
		"another ID":          {tlsconfig.SPIFFEID("spiffe://example.org/db"), "spiffe://example.org/web", nil, tlsconfig.ErrOtherName, `expected the SPIFFE ID "spiffe://example.org/db", seen "spiffe://example.org/web"`},
		"an ID's beginning":   {tlsconfig.SPIFFEID("spiffe://example.org/web"), "spiffe://example.org/web/2", nil, tlsconfig.ErrOtherName, ""},
		"another domain's ID": {tlsconfig.SPIFFEID("spiffe://example.org/web"), "spiffe://example.com/web", nil, tlsconfig.ErrTrustDomain, `seen "spiffe://example.com/web"`},
		"no ID":               {tlsconfig.SPIFFEID("spiffe://example.org/web"), "", []string{"web.example.org"}, tlsconfig.ErrNoID, `expected the SPIFFE ID "spiffe://example.org/web", seen "web.example.org"`},
		"a malformed ID":      {tlsconfig.SPIFFEID("example.org"), "spiffe://example.org/web", nil, tlsconfig.ErrRefused, "must begin with spiffe://"},
		"no IDs":              {tlsconfig.SPIFFEID(), "spiffe://example.org/web", nil, tlsconfig.ErrTrustDomain, "of an empty list"},
		"the domain":          {tlsconfig.TrustDomain("a.org", "example.org"), "spiffe://example.org/web", nil, nil, ""},
		"another domain":      {tlsconfig.TrustDomain("example.org"), "spiffe://example.org.evil.com/web", nil, tlsconfig.ErrTrustDomain, `expected a SPIFFE ID of the trust domain "example.org", seen "spiffe://example.org.evil.com/web"`},
		"no domain":           {tlsconfig.TrustDomain("example.org"), "", []string{"example.org"}, tlsconfig.ErrNoID, ""},
		"a malformed domain":  {tlsconfig.TrustDomain("Example.org"), "spiffe://example.org/web", nil, tlsconfig.ErrRefused, "lower-case"},
		"the DNS name":        {tlsconfig.DNSName("db.example.org", "web.example.org"), "", []string{"web.example.org"}, nil, ""},
		"another DNS name":    {tlsconfig.DNSName("db.example.org"), "", []string{"web.example.org"}, tlsconfig.ErrOtherName, `expected a certificate for "db.example.org", seen "web.example.org"`},
		"the dialled name":    {tlsconfig.ServerName(), "", []string{"*.example.org"}, nil, ""},
		"another was dialled": {tlsconfig.ServerName(), "", []string{"db.example.org"}, tlsconfig.ErrOtherName, `"web.example.org"`},
		"a function":          {func(p tlsconfig.Peer) error { return nil }, "spiffe://example.org/web", nil, nil, ""},
		"a function's no":     {func(p tlsconfig.Peer) error { return own }, "spiffe://example.org/web", nil, own, "not on Sundays"},
	} {
		t.Run(name, func(t *testing.T) {
			web := newParty(t, authority, c.id, c.dns...)
			m := meet(t, server(t, web.options()), client(t, app.options(peer(c.peer))))
			if !errors.Is(m.clientErr, c.want) || m.clientErr != nil && !strings.Contains(m.clientErr.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", m.clientErr, c.want, c.text)
			}
		})
	}
}

func TestIPAddressIsRefusedAsServerName(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "", "web.example.org"), newParty(t, authority, "spiffe://example.org/app")
	c := client(t, app.options(peer(tlsconfig.ServerName())))
	c.ServerName = "127.0.0.1"
	if m := meet(t, server(t, web.options()), c); !errors.Is(m.clientErr, tlsconfig.ErrOtherName) {
		t.Errorf("got %v", m.clientErr)
	}
}

func TestServerWithoutRootsServesAnonymousClients(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	bare := func(o *tlsconfig.Options) { o.Certificate = "" }
	s := server(t, tlsconfig.Options{Source: web, Certificate: "default"})
	c := client(t, app.options(bare))
	m := meet(t, s, c)
	if m.err() != nil || len(m.server.PeerCertificates) != 0 {
		t.Errorf("%v; the server saw %d certificates", m.err(), len(m.server.PeerCertificates))
	}
	if again := meet(t, s, c); !again.client.DidResume {
		t.Error("the session was not resumed")
	}
	if m := meet(t, server(t, web.options()), c); m.serverErr == nil {
		t.Error("a client without a certificate was admitted")
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	app := newParty(t, catest.NewCA(catest.Options{}), "spiffe://example.org/app")
	for want, change := range map[string]func(*tlsconfig.Options){
		"Options.Source is nil":                         func(o *tlsconfig.Options) { o.Source = nil },
		"Peer is set and Options.Roots is empty":        func(o *tlsconfig.Options) { o.Roots = "" },
		"Options.Roots is set and Options.Peer is nil":  func(o *tlsconfig.Options) { o.Peer = nil },
		"Options.Certificate is empty":                  func(o *tlsconfig.Options) { o.Certificate = "" },
		"Options.Roots and Options.Peer are empty; a c": func(o *tlsconfig.Options) { o.Roots, o.Peer = "", nil },
	} {
		_, asServer := tlsconfig.Server(app.options(change))
		_, asClient := tlsconfig.Client(app.options(change))
		if err := errors.Join(asServer, asClient); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestHeldCertificateCostsNoAllocation(t *testing.T) {
	app := newParty(t, catest.NewCA(catest.Options{}), "spiffe://example.org/app")
	manager, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{})}},
		Secrets:     []secret.Spec{{Name: "default", Kind: secret.KeyPair, Identity: app.id, Authorities: []string{"test"}, TTL: time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if _, err := manager.Get(t.Context(), secret.Caller{}, "default"); err != nil {
		t.Fatal(err)
	}
	cfg := server(t, tlsconfig.Options{Source: secret.First(manager), Certificate: "default"})
	hello := &tls.ClientHelloInfo{}
	if n := testing.AllocsPerRun(1000, func() { _, err = cfg.GetCertificate(hello) }); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}
