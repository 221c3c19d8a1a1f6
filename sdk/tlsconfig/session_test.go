package tlsconfig_test

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// keeping is a client's sessions without versions: what a foreign client
// would do.
func keeping(cfg *tls.Config) *tls.Config {
	cfg.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	return cfg
}

func TestSessionIsResumedUntilCertificateOrRootsChange(t *testing.T) {
	for _, whose := range []string{"server", "client"} {
		for _, what := range []string{"certificate", "roots"} {
			t.Run(whose+"'s "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { resumedUntilChanged(t, whose, what) })
			})
		}
	}
}

func resumedUntilChanged(t *testing.T, whose, what string) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	s, c := server(t, web.options()), client(t, app.options())
	meet(t, s, c)
	if m := meet(t, s.Clone(), c.Clone()); m.err() != nil || !m.client.DidResume {
		t.Fatalf("resumed: %v, %v", m.client.DidResume, m.err())
	}
	who := web
	if whose == "client" {
		who = app
	}
	if what == "roots" {
		who.trust(authority.Bundle().Union(catest.NewCA(catest.Options{}).Bundle()))
	} else {
		who.renew(authority)
	}
	for _, wait := range []time.Duration{0, 29 * time.Second, 2 * time.Second} {
		time.Sleep(wait)
		m := meet(t, s, c) // sessions that were made meanwhile may hold what was before
		if m.err() != nil || m.client.DidResume {
			t.Fatalf("resumed: %v, %v", m.client.DidResume, m.err())
		}
		if server, client := m.serials(); server != web.serial() || client != app.serial() {
			t.Error("a certificate of before was shown")
		}
	}
	if m := meet(t, s, c); m.err() != nil || !m.client.DidResume {
		t.Errorf("the new session is not resumed: %v", m.err())
	}
}

// The session holds a certificate that is not trusted any more; its owner has since
// got another.
func TestOldTicketAfterRootChangeForcesFullHandshake(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	s, c := server(t, web.options()), keeping(client(t, app.options()))
	meet(t, s, c)
	old := authority.Bundle()
	authority.Rotate()
	app.renew(authority)
	app.trust(authority.Bundle().Union(old))
	web.trust(authority.Bundle())
	m := meet(t, s, c)
	if m.err() != nil || m.client.DidResume {
		t.Errorf("resumed: %v, %v", m.client.DidResume, m.err())
	}
	if _, client := m.serials(); client != app.serial() {
		t.Error("the client's certificate of before was taken")
	}
}

func TestResumedSessionIsVerifiedAgain(t *testing.T) {
	t.Run("by the client, against its roots", func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
		s, c := server(t, web.options()), keeping(client(t, app.options()))
		meet(t, s, c)
		app.trust(catest.NewCA(catest.Options{}).Bundle())
		m := meet(t, s, c)
		if !m.client.DidResume || !errors.Is(m.clientErr, tlsconfig.ErrUntrusted) {
			t.Errorf("resumed: %v, %v", m.client.DidResume, m.clientErr)
		}
	})
	t.Run("by the server, by its authorizer", func(t *testing.T) {
		authority := catest.NewCA(catest.Options{})
		web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
		var closed atomic.Bool
		s := server(t, web.options(peer(func(tlsconfig.Peer) error {
			if closed.Load() {
				return errors.New("closed")
			}
			return nil
		})))
		c := client(t, app.options())
		meet(t, s, c)
		closed.Store(true)
		m := meet(t, s, c)
		if !m.server.DidResume || !errors.Is(m.serverErr, tlsconfig.ErrRefused) {
			t.Errorf("resumed: %v, %v", m.server.DidResume, m.serverErr)
		}
	})
}

func TestPeerIsRefusedOnceItsCertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := catest.NewCA(catest.Options{TTL: time.Hour})
		web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
		s, c := server(t, web.options()), client(t, app.options())
		time.Sleep(59 * time.Minute)
		if m := meet(t, s, c); m.err() != nil {
			t.Fatal(m.err())
		}
		time.Sleep(2 * time.Minute)
		web.renew(authority)
		m := meet(t, s, c)
		if !errors.Is(m.serverErr, tlsconfig.ErrUntrusted) {
			t.Errorf("got %v", m.serverErr)
		}
	})
}

func TestNothingIsResumedWithoutRoots(t *testing.T) {
	authority := catest.NewCA(catest.Options{})
	web, app := newParty(t, authority, "spiffe://example.org/web"), newParty(t, authority, "spiffe://example.org/app")
	s, c := server(t, web.options()), client(t, app.options())
	meet(t, s, c)
	web.Empty("ROOTCA")
	m := meet(t, s, c)
	if m.server.DidResume || !errors.Is(m.serverErr, tlsconfig.ErrRootsGone) {
		t.Errorf("resumed: %v, %v", m.server.DidResume, m.serverErr)
	}
}
