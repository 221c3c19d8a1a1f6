package identities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// flood opens streams at once: each process brings so many tokens, made by bring.
func (e *engine) flood(processes, tokens int, bring func(process, i int) ca.Token) (errs []error) {
	e.t.Helper()
	failed := make(chan error)
	for p := range processes {
		peer := proxy
		peer.PID = int32(1000 + p)
		for i := range tokens {
			go func() {
				caller, err := e.Join(context.Background(), peer, bring(p, i))
				if err == nil {
					time.Sleep(5 * time.Second) // a refusal ends the stream later
					_, err = e.Peek(caller, "default")
					e.Leave(caller)
				}
				failed <- err
			}()
		}
	}
	for range processes * tokens {
		errs = append(errs, <-failed)
	}
	synctest.Wait()
	return errs
}

func forged(process, i int) ca.Token { return ca.Token(fmt.Sprintf("forged:web:%d.%d", process, i)) }

// slow makes the authority answer after a second, so that many tokens wait at once.
func slow(e *engine) { e.ca.Always(catest.Fault{Delay: time.Second}) }

func countErrors(errs []error, words string) (n int) {
	for _, err := range errs {
		if errors.Is(err, ca.ErrRateLimited) && strings.Contains(err.Error(), words) {
			n++
		}
	}
	return n
}

func TestConcurrentForgedTokensOfProcessMakeFewRequests(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		slow(e)
		errs := e.flood(1, 300, forged)
		e.requests(16)
		if n := countErrors(errs, "tokens of one process that were refused lately is reached: 16"); n != 284 {
			t.Errorf("%d of 300 streams were notified of the limit", n)
		}
	})
}

func TestConcurrentForgedTokensOfUserMakeFewRequests(t *testing.T) {
	bubble(t, nil, func(e *engine) {
		slow(e)
		errs := e.flood(60, 30, forged)
		e.requests(64)
		if n := countErrors(errs, "tokens of one user that were refused lately is reached: 64"); n == 0 {
			t.Error("no stream was notified of the limit")
		}
		other := proxy
		other.UID, other.PID = 2000, 1
		s, err := e.joinAs(other, token("web"))
		if err != nil {
			t.Fatal(err)
		}
		after(2 * time.Second)
		s.held()
		after(3 * time.Minute)
		if _, err := e.tryJoin(token("web", 2)); err != nil {
			t.Errorf("the user is kept out for ever: %v", err)
		}
	})
}

func TestLimitOfAUserIsConfigurable(t *testing.T) {
	limits := func(_ *engine, c *identities.Config) { c.Limits = identities.Limits{Refused: 4, RefusedPerUser: 6} }
	bubble(t, limits, func(e *engine) {
		e.flood(5, 5, forged)
		e.requests(6)
	})
}

// Those beyond the limit wait for the first ones, and then have their turn.
func TestConcurrentGoodTokensOfProcessAllPass(t *testing.T) {
	limits := func(_ *engine, c *identities.Config) { c.Limits = identities.Limits{Refused: 4} }
	bubble(t, limits, func(e *engine) {
		e.flood(1, 3, forged)
		var all []*stream
		for i := range 40 {
			all = append(all, e.join(token(fmt.Sprint("w", i))))
		}
		after(30 * time.Second)
		for _, s := range all {
			s.held()
		}
	})
}

func TestVerifierIsAskedForFewForgedTokensOfAProcess(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.verifier.delay.Store(int64(time.Second))
		errs := e.flood(1, 300, forged)
		if n := e.verifier.asked.Load(); n != 16 {
			t.Errorf("the verifier was asked %d times", n)
		}
		if n := countErrors(errs, "tokens of one process that were refused lately is reached: 16"); n != 284 {
			t.Errorf("%d of 300 streams were notified of the limit", n)
		}
		_, err := e.joinAs(proxy, token("web"))
		if err != nil {
			t.Errorf("another process: %v", err)
		}
		after(3 * time.Minute)
		if errs := e.flood(1, 1, func(int, int) ca.Token { return token("web") }); errs[0] != nil {
			t.Errorf("the process is kept out for ever: %v", errs[0])
		}
	})
}

func TestVerifierIsAskedForFewForgedTokensOfAUser(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.verifier.delay.Store(int64(10 * time.Millisecond))
		errs := e.flood(60, 30, forged)
		if n := e.verifier.asked.Load(); n != 64 {
			t.Errorf("the verifier was asked %d times", n)
		}
		if countErrors(errs, "tokens of one user that were refused lately is reached: 64") == 0 {
			t.Error("no stream was notified of the limit")
		}
	})
}

func TestConcurrentGoodTokensOfProcessAreAllVerified(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		e.verifier.delay.Store(int64(100 * time.Millisecond))
		for _, err := range e.flood(1, 100, func(_, i int) ca.Token { return token("web", i) }) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The token may become good, as when the issuer's key arrives, and then counts no more.
func TestRepeatedlyRefusedTokenCountsOnce(t *testing.T) {
	bubble(t, verified, func(e *engine) {
		for range 20 {
			_, err := e.tryJoin("forged:web")
			is(t, err, ca.ErrUnauthenticated)
			after(11 * time.Second)
		}
		if n := e.verifier.asked.Load(); n != 20 {
			t.Errorf("the verifier was asked %d times", n)
		}
	})
}

// The proxies of a node may all have one uid.
func TestForgedTokensOfOthersDoNotStopKnownProcess(t *testing.T) {
	for name, with := range map[string]func(*engine, *identities.Config){"authority": nil, "verifier": verified} {
		t.Run(name, func(t *testing.T) {
			bubble(t, with, func(e *engine) {
				known := proxy
				known.PID = 1
				join := func(token ca.Token) {
					t.Helper()
					s, err := e.joinAs(known, token)
					if err != nil {
						t.Fatal(err)
					}
					after(2 * time.Second)
					s.held()
				}
				join(token("web"))
				if n := len(e.flood(8, 16, forged)); n != 128 {
					t.Fatal(n)
				}
				join(token("db"))
				for i := range 16 { // which do not count against its user
					_, _ = e.joinAs(known, forged(0, 1000+i))
					after(time.Second)
				}
				if _, err := e.joinAs(known, token("third")); !errors.Is(err, ca.ErrRateLimited) || !strings.Contains(err.Error(), "of one process") {
					t.Errorf("its own forged tokens: %v", err)
				}
			})
		})
	}
}
