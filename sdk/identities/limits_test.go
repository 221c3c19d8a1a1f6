package identities_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// limit fails the test where err is not a refusal that names the limit.
func limit(t *testing.T, err error, words string) {
	t.Helper()
	is(t, err, ca.ErrRateLimited)
	if !strings.Contains(err.Error(), words) {
		t.Errorf("%q does not say %q", err, words)
	}
}

func TestRefusalNamesItsLimit(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits = identities.Limits{Identities: 2, Streams: 3} }, func(e *engine) {
		for range 3 {
			e.join(token("web"))
		}
		_, err := e.tryJoin(token("web"))
		limit(t, err, "streams of one identity is reached: 3")
		db := e.join(token("db"))
		db.held()
		_, err = e.tryJoin(token("third"))
		limit(t, err, "identities is reached: 2")
		db.leave() // unused entries make room
		e.join(token("third")).held()
		if n := e.Counts(); n.Identities != 2 || n.OverLimit != 2 || n.TurnedAway != 2 {
			t.Errorf("counts: %+v", n)
		}
	})
}

// A broker's streams for an identity leave the places of its workloads.
func TestStreamsOfTheProgramAreNotLimited(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits = identities.Limits{Streams: 2} }, func(e *engine) {
		const web = "spiffe://example.org/web"
		for range 3 {
			if _, err := e.JoinAs(proxy, web); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			e.join(token("web")).held()
		}
		_, err := e.tryJoin(token("web"))
		limit(t, err, "streams of one identity is reached: 2")
		if _, err := e.JoinAs(proxy, web); err != nil {
			t.Error(err)
		}
	})
}

func TestStreamLimitAppliesToLateJoiners(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits = identities.Limits{Streams: 2} }, func(e *engine) {
		e.join(token("web")).held()
		e.join(token("web")).held()
		late := e.join(token("web", "another"))
		err := late.nothing()
		is(t, err, secret.ErrEnded)
		limit(t, err, "streams of one identity is reached: 2")
	})
}

func TestProcessWithBadTokensIsStopped(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		for i := range 16 {
			s := e.join(ca.Token(fmt.Sprint("forged:web", i)))
			is(t, s.nothing(), ca.ErrUnauthenticated)
			s.leave()
		}
		_, err := e.tryJoin("forged:web")
		limit(t, err, "tokens of one process that were refused lately is reached: 16")
		other := proxy
		other.PID++
		s, err := e.joinAs(other, token("web"))
		if err != nil {
			t.Fatal(err)
		}
		s.held()
		e.requests(17)
		after(2 * time.Minute)
		if n := e.Counts(); n.Unverified != 0 || n.Refused != 16 {
			t.Errorf("counts: %+v", n)
		}
		e.join(token("web", 2)).held()
	})
}

// Processes are cheap to make; a flood of bad tokens must not use up the identities.
func TestBadTokensDoNotExhaustIdentities(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits.Identities = 10 }, func(e *engine) {
		old := e.join(token("old"))
		first := old.held()
		for i := range 100 {
			peer := proxy
			peer.PID = int32(1000 + i)
			s, err := e.joinAs(peer, ca.Token(fmt.Sprint("forged:old:", i)))
			if err != nil {
				t.Fatal(err)
			}
			is(t, s.nothing(), ca.ErrUnauthenticated)
			s.leave()
		}
		e.join(token("new")).held()
		if old.held() != first {
			t.Error("the old one noticed something")
		}
		if n := e.Counts(); n.Identities+n.Unverified > 10 {
			t.Errorf("counts: %+v", n)
		}
	})
}

func TestVerifierIsAskedOncePerToken(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.verifier.hang.Store(true)
		failed := make(chan error, 50)
		for range 50 {
			go func() {
				_, err := e.Join(context.Background(), proxy, token("web"))
				failed <- err
			}()
		}
		synctest.Wait()
		if n := e.verifier.asked.Load(); n != 1 {
			t.Errorf("%d verifications are under way", n)
		}
		for range 50 {
			if err := <-failed; err == nil {
				t.Error("an unverified token was taken")
			}
		}
		synctest.Wait() // the verification ends in the same moment as those who wait for it
		e.verifier.hang.Store(false)
		for range 50 {
			_, err := e.tryJoin("forged:web")
			is(t, err, ca.ErrUnauthenticated)
		}
		if n := e.verifier.asked.Load(); n != 2 {
			t.Errorf("the verifier was asked %d times", n)
		}
		e.join(token("web")).held()
	})
}

func TestMassOutageDoesNotFillLog(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	bubble(t, nil, func(e *engine) {
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "down")})
		for i := range 500 {
			e.join(token(fmt.Sprint("w", i)))
		}
		after(10 * time.Minute)
		if n := strings.Count(e.logged(), "\n"); n > 200 {
			t.Errorf("%d lines in ten minutes", n)
		}
	})
}

func TestInvalidConfigIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		good := identities.Config{
			Manager: e.manager, Certificate: secret.Spec{Authorities: []string{"test"}}, Identify: identities.Identify{Claimed: e.claimed},
		}
		for words, change := range map[string]func(*identities.Config){
			"Manager is required":       func(c *identities.Config) { c.Manager = nil },
			"names 0 authorities":       func(c *identities.Config) { c.Certificate.Authorities = nil },
			"names 2 authorities":       func(c *identities.Config) { c.Certificate.Authorities = []string{"a", "b"} },
			"set Verifier, Claimed or":  func(c *identities.Config) { c.Identify = identities.Identify{} },
			"and of a trust bundle":     func(c *identities.Config) { c.Certificate.Name = "ROOTCA" },
			"must be more than 0":       func(c *identities.Config) { c.Certificate.RenewRatio = 1 },
			"must not be negative":      func(c *identities.Config) { c.Limits.Identities = -1 },
			"idle time -1s and limits ": func(c *identities.Config) { c.Idle = -time.Second },
		} {
			bad := good
			change(&bad)
			if _, err := identities.New(bad); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("got %v, want %q", err, words)
			}
		}
	})
}
