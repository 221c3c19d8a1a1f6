package identities_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestRotationIsOneRequestPerIdentity(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	bubble(t, func(_ *engine, c *identities.Config) { c.Certificate.RenewJitter = 0.01 }, func(e *engine) {
		const many = 100
		streams := make([]*stream, many)
		for i := range many {
			streams[i] = e.join(token(fmt.Sprint("w", i)))
			e.join(token(fmt.Sprint("w", i)))
		}
		e.requests(many)
		for round := 2; round <= 4; round++ {
			after(ttl/2 + ttl/10)
			e.requests(round * many)
		}
		if n := e.Counts(); n.Rotations != 4*many || n.Joins != 0 || n.Held != many {
			t.Errorf("counts: %+v", n)
		}
	})
}

func TestRenewalsAreSpread(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		const many = 200
		var at []time.Time
		for i := range many {
			at = append(at, e.join(token(fmt.Sprint("w", i))).held().RenewAt)
		}
		slices.SortFunc(at, time.Time.Compare)
		if first, last := at[0], at[many-1]; last.Sub(first) < ttl/8 {
			t.Errorf("all %d renewals are between %s and %s", many, first, last)
		}
	})
}

// After a restart everybody comes at once. The authority is asked by a few at a time,
// and no request is made twice.
func TestRestartWithManyIdentitiesLimitsRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits.InFlight = 8 }, func(e *engine) {
		const many = 1000
		e.ca.Always(catest.Fault{Delay: 100 * time.Millisecond})
		for i := range many {
			e.join(token(fmt.Sprint("w", i)))
		}
		after(many / 8 * 100 * time.Millisecond)
		e.requests(many)
		if most := e.ca.most.Load(); most != 8 {
			t.Errorf("%d requests were under way at once", most)
		}
	})
}

func TestWaitingStreamsPrecedeRenewals(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits.InFlight = 1 }, func(e *engine) {
		for i := range 20 {
			e.join(token(fmt.Sprint("old", i))).held()
		}
		e.ca.Always(catest.Fault{Delay: 20 * time.Second})
		after(ttl/2 - ttl/30) // about half are due, and one is asked for at a time
		synctest.Wait()
		before := len(e.ca.Requests())
		s := e.join(token("new"))
		after(2 * time.Minute)
		s.held()
		next := e.ca.Requests()[before : before+2] // each fourth turn is a renewal's
		if next[0].SubjectID != domain+"new" && next[1].SubjectID != domain+"new" {
			t.Errorf("%s and %s were asked for before the one who waits", next[0].SubjectID, next[1].SubjectID)
		}
	})
}

func TestUnverifiedTokensDoNotDelayRenewals(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits.InFlight = 1 }, func(e *engine) {
		old := e.join(token("old"))
		first := old.held()
		after(time.Until(first.RenewAt) - time.Second)
		e.ca.Always(catest.Fault{Delay: time.Second})
		for i := range 1000 {
			e.join(token(fmt.Sprint("new", i)))
		}
		after(10 * time.Second)
		if old.held() == first {
			t.Error("the renewal is still behind the others")
		}
	})
}

func TestCertificateIsDroppedAfterLastStream(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		s := e.join(token("web", "until=10h"))
		item := s.held()
		key := string(item.Key)
		s.leave()
		after(9 * time.Minute)
		again := e.join(token("web", "until=10h"))
		if again.held() != item {
			t.Error("it was not kept")
		}
		again.leave()
		after(11 * time.Minute)
		if n := e.Counts(); n.Identities != 0 || n.Released != 1 || n.Streams != 0 {
			t.Errorf("counts: %+v", n)
		}
		if string(item.Key) != key {
			t.Error("an item that was handed out has changed")
		}
		if e.join(token("web", "until=10h")).held() == item {
			t.Error("what was let go of is served")
		}
		e.requests(2)
	})
}

func TestUnusedIdentityIsNotRenewed(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Idle = 10 * ttl }, func(e *engine) {
		s := e.join(token("web"))
		first := s.held()
		s.leave()
		after(ttl / 2 * 3)
		e.requests(1)
		if e.count(secret.Expired) != 0 {
			t.Error("no stream misses it")
		}
		if e.join(token("web")).held() == first {
			t.Error("what has expired is served")
		}
	})
}

func TestTokenExpiredAtRenewalEndsItsStreams(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		short := e.join(token("web", "until=10m"))
		item := short.held()
		after(15 * time.Minute)
		short.held() // what is held is served on until the renewal
		after(time.Until(item.RenewAt) + time.Second)
		err := short.nothing()
		is(t, err, secret.ErrEnded)
		is(t, err, ca.ErrUnauthenticated)
		e.requests(1)
		short.leave()
		// It comes back with a new one, which identifies its owner and rotates at once.
		next := e.join(token("web", "until=10h"))
		if next.held() == item {
			t.Error("nothing was rotated")
		}
		e.requests(2)
		if n := e.Counts(); n.Joins != 0 || n.Ended != 1 || n.Rotations != 2 || n.Released != 0 {
			t.Errorf("counts: %+v", n)
		}
	})
}

func TestOtherGoodTokenKeepsIdentityAlive(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		short, long := e.join(token("web", "until=10m")), e.join(token("web", "until=10h"))
		first := long.held()
		after(ttl/2 + ttl/10)
		if long.held() == first {
			t.Error("it was not rotated")
		}
		is(t, short.nothing(), ca.ErrUnauthenticated)
		if got := e.requests(3)[2].Token; got != token("web", "until=10h") {
			t.Error("it was asked for with the token that has expired")
		}
	})
}

func TestReconnectsDoNotDefeatBackoff(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*engine, *identities.Config)
		token  ca.Token
	}{"verified by the authority": {nil, token("web")}, "verified before": {verified, token("web")}, "a peer": {peersAreWeb, ""}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, one.change, func(e *engine) {
				e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "down")})
				for range 700 { // a client that reconnects all the time
					s := e.join(one.token)
					after(7 * time.Millisecond)
					s.leave()
				}
				if n := len(e.ca.Requests()); n > 5 {
					t.Errorf("%d requests in five seconds", n)
				}
				s := e.join(one.token)
				e.ca.Always(catest.Fault{})
				after(15 * time.Second)
				s.held()
			})
		})
	}
}

// A new token is a reason to ask again only where the last one was refused, and not without end.
func TestNewTokensDoNotDefeatBackoff(t *testing.T) {
	for reason, most := range map[ca.Reason]int{ca.RateLimited: 5, ca.Unavailable: 5, ca.Denied: 16 + 5, ca.Unauthenticated: 16 + 5} {
		t.Run(reason.String(), func(t *testing.T) { bringNewTokens(t, verified, reason, most) })
	}
	// Each unverified token has a pause of its own, and a process has 16 of them at once.
	for reason, most := range map[ca.Reason]int{ca.RateLimited: 3 * 16, ca.Unavailable: 8 * 16} {
		t.Run(reason.String()+" verified by the authority", func(t *testing.T) { bringNewTokens(t, nil, reason, most) })
	}
}

// A person may take hours to decide: that must not keep further tokens of the process waiting.
func TestPendingTokensLeaveOthersTheirTurn(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Next(40, catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Hour}})
		for i := range 40 {
			e.join(token(fmt.Sprint("w", i)))
		}
		e.requests(40)
		e.join(token("web")).held()
	})
}

func bringNewTokens(t *testing.T, change func(*engine, *identities.Config), reason ca.Reason, most int) {
	t.Helper()
	bubble(t, change, func(e *engine) {
		e.ca.Always(catest.Fault{Err: ca.Errorf(reason, "not now")})
		var last *stream
		for i := range 700 {
			if last != nil {
				last.leave()
			}
			last = e.join(token("web", i, ":until=99h"))
			after(7 * time.Millisecond)
		}
		if n := len(e.ca.Requests()); n > most {
			t.Errorf("%d requests in five seconds", n)
		}
		e.ca.Always(catest.Fault{})
		after(11 * time.Minute)
		last.held()
		if n := e.Counts(); n.Unverified != 0 {
			t.Errorf("%d tokens are left", n.Unverified)
		}
	})
}

// peersAreWeb has streams without a token be web's, for which the agent has a token.
func peersAreWeb(_ *engine, c *identities.Config) {
	c.Identify.Peer = func(secret.Caller) (string, bool) { return domain + "web", true }
	c.Exchange.Token = func(_ context.Context, brought ca.Token) (ca.Token, error) {
		return cmp.Or(brought, token("web", "the agent's")), nil
	}
}

// A person may take hours to approve a request: a repeat is that request, and no failure.
func TestPendingRequestIsRepeatedAndCountedApart(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Always(catest.Fault{Err: &ca.Error{Reason: ca.Pending, RetryAfter: time.Minute}})
		web := e.join(token("web"))
		after(10 * time.Minute)
		if n := e.Counts(); n.Pending != 1 || n.Failing != 0 || n.Failures != 0 || e.count(secret.Failed) != 0 || e.count(secret.Waiting) < 8 {
			t.Errorf("counts %+v, %d failed, %d waiting", n, e.count(secret.Failed), e.count(secret.Waiting))
		}
		e.ca.Always(catest.Fault{})
		after(2 * time.Minute)
		web.held()
		requests := e.ca.Requests()
		for _, r := range requests {
			if r.ID != requests[0].ID {
				t.Fatal("a repeat is another request")
			}
		}
		if n := e.Counts(); n.Pending != 0 {
			t.Errorf("counts %+v", n)
		}
	})
}

// The same request is sent again, so that an authority can recognise it.
func TestRetryIsTheSameOrder(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Next(2, catest.Fault{Err: ca.Errorf(ca.Unavailable, "down")})
		s := e.join(token("web"))
		after(10 * time.Second)
		s.held()
		asked := e.requests(3)
		if asked[0].ID != asked[2].ID || !bytes.Equal(asked[0].CSR, asked[2].CSR) {
			t.Error("the retry was another order")
		}
	})
}

// The pauses grow as if the stream had stayed.
func TestRefusedTokenIsNotRetriedByReconnecting(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.join("forged:web")
		synctest.Wait()
		_, err := e.tryJoin("forged:web")
		is(t, err, ca.ErrUnauthenticated)
		for _, c := range []struct {
			every time.Duration
			tries int
			most  int
		}{{7 * time.Millisecond, 700, 4}, {7 * time.Second, 85, 20}} {
			for range c.tries {
				if s, err := e.tryJoin("forged:web"); err == nil {
					synctest.Wait()
					e.Leave(s.caller)
				}
				after(c.every)
			}
			if n := len(e.ca.Requests()); n > c.most {
				t.Errorf("%d requests", n)
			}
		}
	})
}

func TestHeldCertificateIsServedThroughOutage(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		s := e.join(token("web"))
		item := s.held()
		told := s.notices.Load() // 0 if it was there before the watch
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "down")})
		after(time.Until(item.NotAfter) - time.Second)
		if s.held() != item || s.notices.Load() != told {
			t.Error("the stream noticed the outage")
		}
		after(2 * time.Second)
		is(t, s.nothing(), secret.ErrNotReady)
		if n := e.Counts(); n.Expired != 1 || n.Missing != 1 || n.Failure == nil || s.notices.Load() != told || e.count(secret.Expired) != 1 {
			t.Errorf("counts: %+v", n)
		}
		e.ca.Always(catest.Fault{})
		e.Kick()
		s.held()
	})
}

// A token of which the end is not known, and that the authority no longer takes, has
// ended by all signs.
func TestRejectedTokenEndsOnlyItsStreams(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		a, b := e.join(token("web", 1)), e.join(token("web", 2))
		first := a.held()
		after(time.Until(first.RenewAt) - time.Second)
		e.ca.Next(1, catest.Fault{Err: ca.Errorf(ca.Unauthenticated, "expired")})
		after(2 * time.Second)
		ended, alive := a, b
		if _, err := e.Peek(a.caller, "default"); err == nil {
			ended, alive = b, a
		}
		is(t, ended.nothing(), ca.ErrUnauthenticated)
		if alive.held() == first {
			t.Error("the other stream's token was not tried")
		}
		e.requests(4)
	})
}

func TestAuthorityRejectingGoodTokensEndsNoStream(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		a, b := e.join(token("web", "until=10h")), e.join(token("web", "2:until=11h"))
		first := a.held()
		after(time.Until(first.RenewAt) - time.Second)
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unauthenticated, "keys are lost")})
		after(30 * time.Second)
		if a.held() != first || b.held() != first {
			t.Error("what is held was not served on")
		}
		e.requests(4) // each token once, and then the pause
		e.ca.Always(catest.Fault{})
		after(4 * time.Minute) // two refusals in a row: a pause of 90 to 150 s
		if a.held() == first {
			t.Error("it was not asked again")
		}
	})
}

func TestUntriedTokenEndsPause(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.ca.Next(1, catest.Fault{Err: ca.Errorf(ca.Denied, "not you")})
		a := e.join(token("web", 1))
		is(t, a.nothing(), secret.ErrNotReady)
		b := e.join(token("web", 2))
		b.held()
		a.held()
	})
}

// A broker's stream for an identity must not keep the tokens of its workloads from being tried.
func TestRefusedRequestWithoutTokenLeavesTokensTheirTurn(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		broker, err := e.JoinAs(proxy, domain+"web")
		if err != nil {
			t.Fatal(err)
		}
		e.requests(1) // refused
		web := e.join(token("web", 1))
		first := web.held()
		e.requests(2)
		after(time.Until(first.RenewAt) + time.Second)
		if web.held() == first {
			t.Error("the certificate was not renewed")
		}
		e.requests(3) // what was refused is not tried first again
		web.leave()
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unauthenticated, "keys are lost")})
		e.join(token("web", "2:until=99h"))
		after(26 * time.Hour)
		without := 0
		for _, r := range e.ca.Requests()[3:] {
			if r.Token == "" {
				without++
			}
		}
		if with := len(e.ca.Requests()) - 3 - without; without < 2 || with < 2 {
			t.Errorf("%d requests without and %d with a token; each has its turn", without, with)
		}
		e.Leave(broker)
	})
}

// One workload's token that lacks a right must not keep the others of the identity from being tried.
func TestDeniedTokenLeavesOthersTheirTurn(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.ca.denied = token("web", "1:until=99h")
		e.join(e.ca.denied)
		e.requests(1)
		other := e.join(token("web", "2:until=50h"))
		first := other.held()
		e.requests(2)
		after(time.Until(first.RenewAt) + time.Second)
		if other.held() == first {
			t.Error("the certificate was not renewed")
		}
		e.requests(3)
	})
}

func TestStreamWithoutTokenEndsPauseOfRefusedToken(t *testing.T) {
	bubble(t, func(e *engine, c *identities.Config) { verified(e, c); peersAreWeb(e, c) }, func(e *engine) {
		e.ca.denied = token("web", "1:until=99h")
		web := e.join(e.ca.denied)
		e.requests(1)
		e.join("").held()
		web.held()
		e.requests(2)
	})
}

// Streams of a broker need the agent's own token; the tokens of workloads do not.
func TestMissingTokenOfTheAgentLeavesOthersTheirTurn(t *testing.T) {
	bubble(t, func(e *engine, c *identities.Config) {
		verified(e, c)
		c.Exchange.Token = func(_ context.Context, brought ca.Token) (ca.Token, error) {
			if brought == "" {
				return "", ca.Errorf(ca.Unavailable, "no token")
			}
			return brought, nil
		}
	}, func(e *engine) {
		if _, err := e.JoinAs(proxy, domain+"web"); err != nil {
			t.Fatal(err)
		}
		e.requests(0)
		web := e.join(token("web", "until=99h"))
		after(10 * time.Second)
		first := web.held()
		after(time.Until(first.RenewAt) + time.Second)
		if web.held() == first {
			t.Error("the certificate was not renewed")
		}
	})
}

func TestClockSetBackLeavesEachItsTurn(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		if _, err := e.JoinAs(proxy, domain+"web"); err != nil {
			t.Fatal(err)
		}
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unauthenticated, "keys are lost")})
		e.join(token("web", "until=999h"))
		after(time.Hour)
		e.jump.Add(int64(-200 * time.Hour))
		before := len(e.ca.Requests())
		after(10 * time.Hour)
		asked := e.ca.Requests()[before:]
		without := 0
		for _, r := range asked {
			if r.Token == "" {
				without++
			}
		}
		if len(asked) < 10 || without < len(asked)/2-1 || without > len(asked)/2+1 {
			t.Errorf("%d of %d requests without a token", without, len(asked))
		}
	})
}

func TestClockJumpsAreHandled(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		s := e.join(token("web"))
		first := s.held()
		e.jump.Add(int64(-2 * time.Hour)) // back: no second request
		after(time.Minute)
		e.requests(1)
		e.jump.Add(int64(2*time.Hour + 40*time.Minute)) // forward: renew
		after(time.Minute)
		if s.held() == first {
			t.Error("the jump was not noticed")
		}
		e.requests(2)
	})
}

func TestCertificateBeginningLaterWaits(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		e.ca.Next(1, catest.Fault{Break: func(d *catest.Draft) { d.Leaf.NotBefore = e.now().Add(time.Minute) }})
		s := e.join(token("web"))
		is(t, s.nothing(), secret.ErrNotReady)
		after(time.Minute)
		s.held()
		e.requests(1)
	})
}

func TestCertificatesWithoutRootAreReplacedAtOnce(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		a, b := e.join(token("web")), e.join(token("db"))
		first := a.held()
		b.held()
		e.ca.Rotate()
		after(time.Second)
		if a.held() == first {
			// The old root is kept while certificates under it live.
			if item, err := e.Peek(a.caller, "ROOTCA"); err != nil || len(item.RootFingerprints) != 2 {
				t.Fatalf("the roots are %v, %v", item, err)
			}
		}
		e.requests(2)
	})
	bubble(t, func(e *engine, c *identities.Config) {
		none := time.Duration(0)
		err := e.manager.Reload([]secret.Spec{{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}}},
			[]secret.Authority{{Name: "test", Client: e.ca, RootOverlap: &none}})
		if err != nil {
			e.t.Fatal(err)
		}
	}, func(e *engine) {
		a, b := e.join(token("web")), e.join(token("db"))
		first := a.held()
		b.held()
		after(2 * time.Minute)
		e.ca.Rotate()
		after(time.Second)
		if a.held() == first {
			t.Error("it was not replaced")
		}
		e.requests(4)
	})
}

func TestHangingRequestDoesNotBlockOthers(t *testing.T) {
	bubble(t, func(_ *engine, c *identities.Config) { c.Limits.InFlight = 2 }, func(e *engine) {
		e.ca.Next(1, catest.Fault{Hang: true})
		stuck := e.join(token("stuck"))
		synctest.Wait()
		for i := range 50 {
			e.join(token(fmt.Sprint("w", i))).held()
		}
		is(t, stuck.nothing(), secret.ErrNotReady)
		after(time.Minute)
		stuck.held()
	})
}

func TestClosedSetIsQuiet(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		s := e.join(token("web"))
		item := s.held()
		key := string(item.Key)
		e.ca.Always(catest.Fault{Hang: true})
		e.join(token("db"))
		synctest.Wait()
		e.Close()
		is(t, s.nothing(), secret.ErrClosed)
		if string(item.Key) != key {
			t.Error("an item that was handed out has changed")
		}
		if _, err := e.Join(context.Background(), proxy, token("web")); err == nil {
			t.Error("a closed set takes in streams")
		}
	})
}
