package identities_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestEachStreamGetsCertificateOfItsToken(t *testing.T) {
	for name, change := range map[string]func(*engine, *identities.Config){"verified by the authority": nil, "verified before": verified} {
		t.Run(name, func(t *testing.T) {
			bubble(t, change, func(e *engine) {
				web, db := e.join(token("web")), e.join(token("db"))
				if got := web.held().Identity.String(); got != domain+"web" {
					t.Errorf("web has the certificate of %s", got)
				}
				if got := db.held().Identity.String(); got != domain+"db" {
					t.Errorf("db has the certificate of %s", got)
				}
				e.requests(2)
			})
		})
	}
}

func TestForgedTokenWithStolenSubjectGetsNothing(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		victim := e.join(token("web"))
		before := victim.held()
		told := victim.notices.Load() // 0 if it was there before the watch
		forger := e.join("forged:web")
		err := forger.nothing()
		is(t, err, secret.ErrEnded)
		is(t, err, ca.ErrUnauthenticated)
		if _, err := e.Peek(forger.caller, "ROOTCA"); !errors.Is(err, secret.ErrEnded) {
			t.Errorf("the forger got the roots: %v", err)
		}
		if victim.held() != before || victim.notices.Load() != told {
			t.Error("the victim noticed something")
		}
		if n := e.Counts(); n.Identities != 1 || n.Joins != 0 || n.Refused != 1 {
			t.Errorf("counts: %+v", n)
		}
	})
}

func TestVerifierRejectsForgedToken(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.join(token("web")).held()
		_, err := e.tryJoin("forged:web")
		is(t, err, ca.ErrUnauthenticated)
		e.requests(1) // the authority got no request
	})
}

// An unverified token has nothing, and no secret but its own can become
// its.
func TestStreamHasNothingBeforeTokenIsVerified(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.join(token("web")).held()
		e.ca.Always(catest.Fault{Hang: true})
		late := e.join(token("web", 2))
		is(t, late.nothing(), secret.ErrNotReady)
		_, err := e.Peek(late.caller, "ROOTCA")
		is(t, err, secret.ErrNotReady)
	})
}

func TestWrongNameFromAuthorityIsRefusedAndRetried(t *testing.T) {
	bubble(t, func(e *engine, c *identities.Config) {
		// The token claims to be web's; the authority returns another name.
		c.Identify.Claimed = func(ca.Token) (identities.Claim, error) { return identities.Claim{SPIFFEID: domain + "web"}, nil }
	}, func(e *engine) {
		e.join(token("web")).held()
		e.ca.Next(1, catest.Fault{Break: catest.WrongName})
		s := e.join(token("web", 2))
		is(t, s.nothing(), secret.ErrNotReady) // exact by default: refused, and asked again
		after(13 * time.Second)
		if s.held().Identity.String() != domain+"web" {
			t.Error("the second attempt did not count")
		}
	})
}

func TestStreamsOfOneIdentityShareKeyAndPush(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		a, b := e.join(token("web")), e.join(token("web"))
		if a.held() != b.held() {
			t.Error("one token, two certificates")
		}
		e.requests(1)
		c := e.join(token("web", "another")) // the authority has to vouch for it
		if c.held() != a.held() {
			t.Error("another token of the identity has another certificate")
		}
		e.requests(2)
		if n := e.Counts(); n.Joins != 1 || n.Rotations != 1 || n.Identities != 1 || n.Streams != 3 {
			t.Errorf("counts: %+v", n)
		}
		told := a.notices.Load()
		if told > 1 { // 0 if the certificate was there before the watch
			t.Errorf("the first stream was notified %d times", told)
		}
		after(time.Until(a.held().RenewAt) + time.Second)
		e.requests(3)
		if a.held() != b.held() || b.held() != c.held() || a.notices.Load() != told+1 {
			t.Error("the rotation was not one for all")
		}
	})
}

func TestVerifiedTokenIsRememberedUntilExpiry(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		good := token("web", "until=20m")
		for range 5 {
			e.join(good).leave()
		}
		if n := e.verifier.asked.Load(); n != 1 {
			t.Errorf("the verifier was asked %d times", n)
		}
		after(21 * time.Minute)
		_, err := e.tryJoin(good)
		is(t, err, ca.ErrUnauthenticated)
	})
}

func TestPeersHaveMappedIdentity(t *testing.T) {
	bubble(t, func(e *engine, c *identities.Config) {
		c.Identify = identities.Identify{Peer: func(peer secret.Caller) (string, bool) { return domain + "web", peer.UID == 1000 }}
		c.Exchange.Token = func(_ context.Context, token ca.Token) (ca.Token, error) { return "good:web", nil }
	}, func(e *engine) {
		if got := e.join("").held().Identity.String(); got != domain+"web" {
			t.Errorf("the peer has the certificate of %s", got)
		}
		_, err := e.joinAs(secret.Caller{ID: "uid:1", UID: 1}, "")
		is(t, err, ca.ErrUnauthenticated)
		_, err = e.tryJoin(token("web"))
		is(t, err, ca.ErrUnauthenticated) // its owner is unknown here
	})
}

func TestCallerIsBoundToItsStream(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		s := e.join(token("web"))
		s.held()
		for name, caller := range map[string]secret.Caller{
			"the agent":        {},
			"another user":     {ID: s.caller.ID, Session: s.caller.Session},
			"without a number": {ID: domain + "web"},
		} {
			if _, err := e.Peek(caller, "default"); !errors.Is(err, secret.ErrUnknown) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"", "*", "DEFAULT", "default ", domain + "web", "file-cert:/etc/key", "ROOTCA/", "../default"} {
			if _, err := e.Peek(s.caller, name); !errors.Is(err, secret.ErrUnknown) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if _, err := e.Peek(s.caller, "ROOTCA"); err != nil {
			t.Errorf("ROOTCA: %v", err)
		}
	})
}
