package secret_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// failing starts an engine whose authority answers err from the start.

func failing(t *testing.T, err error) *engine {
	return newEngine(t, func(c *secret.Config) {
		c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: err})
	})
}

func TestEveryReasonHasItsWait(t *testing.T) {
	soon := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
	for reason, c := range map[ca.Reason]struct {
		waits []time.Duration // each within a quarter, and a bit
		same  bool            // the retries are the same order
	}{
		ca.Unknown: {soon, true}, ca.Unavailable: {soon, true}, ca.Aborted: {soon, true},
		ca.Internal: {soon, true}, ca.Deadline: {soon, true}, ca.NotConfigured: {soon, true}, ca.Canceled: {soon, true},
		ca.Invalid: {soon, false}, ca.Denied: {soon, false}, ca.Unauthenticated: {soon, false},
	} {
		t.Run(reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := failing(t, ca.Errorf(reason, "as planned"))
				e.requests(1)
				for i, want := range c.waits {
					wait := e.status("default").Failure.NextTry.Sub(e.now())
					if wait < want*7/10 || wait > want*13/10 {
						t.Fatalf("wait %d is %s, want some %s", i+1, wait, want)
					}
					after(wait - time.Millisecond)
					e.requests(i + 1)
					after(2 * time.Millisecond)
					got := e.requests(i + 2)
					if last := got[i+1]; (last.ID == got[0].ID) != c.same || bytes.Equal(last.CSR, got[0].CSR) != c.same {
						t.Errorf("that retry %d is the same order is %t", i+1, !c.same)
					}
				}
				if got := e.count(secret.Failed, reason.String()); got != len(c.waits)+1 {
					t.Errorf("%d failures were notified: %v", got, e.events)
				}
			})
		})
	}
}

// A proxy in front of a CA that starts says the same as a CA that cannot sign.
func TestMissingAbilityIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := failing(t, ca.ErrUnimplemented)
		after(7 * time.Minute)
		e.requests(1)
		if f := e.status("default").Failure; f.Reason != "unimplemented" || f.NextTry.IsZero() {
			t.Errorf("failure %+v", f)
		}
		e.ca.Always(catest.Fault{})
		after(3*time.Minute + time.Second)
		e.held("default")
	})
}

func TestMissingAbilityIsAskedForAtOnceAfterProviderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := failing(t, ca.ErrUnimplemented)
		e.ca.Always(catest.Fault{})
		e.Kick("test")
		e.held("default")
	})
}

func TestKickEndsOnlyWaitOfItsAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := failing(t, ca.ErrDenied)
		e.requests(1)
		e.Kick("another")
		e.requests(1)
		e.ca.Always(catest.Fault{})
		e.Kick("")
		e.held("default")
		e.requests(2)
		e.Kick("test")
		e.requests(2) // nothing had failed
	})
}

func TestKickDuringRequestCountsForItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Delay: time.Second, Err: ca.ErrDenied})
		})
		synctest.Wait()
		e.Kick("test")
		after(2 * time.Second)
		e.held("default")
	})
}

func TestRetryAfterIsHonouredWithinBounds(t *testing.T) {
	for name, c := range map[string]struct {
		asked, least, most time.Duration
		held               bool
	}{
		"is honoured":                                 {20 * time.Second, 20 * time.Second, 40 * time.Second, true},
		"goes to a tenth of the remaining life":       {time.Hour, 110 * time.Second, 220 * time.Second, true},
		"goes to ten minutes where nothing is held":   {time.Hour, 10 * time.Minute, 20 * time.Minute, false},
		"does not make the wait shorter than backoff": {time.Millisecond, 740 * time.Millisecond, 1260 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := &ca.Error{Reason: ca.RateLimited, RetryAfter: c.asked}
				var e *engine
				if c.held {
					e = newEngine(t, nil)
					e.untilRenewal(-time.Second)
					e.ca.Always(catest.Fault{Err: err})
					after(time.Second)
				} else {
					e = failing(t, err)
				}
				wait := e.status("default").Failure.NextTry.Sub(e.now())
				if wait < c.least || wait > c.most {
					t.Errorf("the next try is in %s, want %s to %s", wait, c.least, c.most)
				}
			})
		})
	}
}

func TestEngineRetriesWithinSecondsWhileNothingIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := failing(t, ca.ErrUnavailable)
		after(10 * time.Minute)
		if wait := e.status("default").Failure.NextTry.Sub(e.now()); wait > 13*time.Second {
			t.Errorf("after ten minutes the next try is in %s", wait)
		}
		if n := e.count(secret.Failed, "unavailable"); n > 90 {
			t.Errorf("%d tries in ten minutes", n)
		}
	})
}

// tokens returns one token after the other, the last again and again.

func tokens(list ...ca.Token) func(context.Context) (ca.Bearer, error) {
	return func(context.Context) (ca.Bearer, error) {
		token := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		return ca.Bearer{Token: token}, nil
	}
}

func TestRejectedTokenIsReadAgainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = tokens("old", "new", "newest")
			c.Authorities[0].Client.(*catest.CA).Next(2, catest.Fault{Err: ca.ErrUnauthenticated})
		})
		got := e.requests(2)
		if got[0].Token != "old" || got[1].Token != "new" || got[0].ID != got[1].ID {
			t.Error("the second request is not the first with a new token")
		}
		after(700 * time.Millisecond)
		e.requests(2)
		after(time.Second)
		e.held("default")
	})
}

func TestUnreadableTokenIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) {
				if !healed.Load() {
					return ca.Bearer{}, fmt.Errorf("no such file")
				}
				return ca.Bearer{Token: "token"}, nil
			}
		})
		e.requests(0)
		synctest.Wait()
		healed.Store(true)
		after(2 * time.Second)
		if got := e.requests(1); got[0].Token != "token" {
			t.Error("the token was not sent")
		}
	})
}

func TestHangingTokenSourceIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = func(ctx context.Context) (ca.Bearer, error) { <-ctx.Done(); return ca.Bearer{}, ctx.Err() }
		})
		after(31 * time.Second)
		if f := e.status("default").Failure; f == nil || f.Reason != "deadline exceeded" {
			t.Errorf("failure %+v", f)
		}
	})
}

func TestHangingAuthorityIsRetriedAfterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Hang: true})
		})
		after(29 * time.Second)
		e.requests(1)
		after(3 * time.Second)
		if got := e.requests(2); got[0].ID != got[1].ID {
			t.Error("the retry is another order")
		}
		e.held("default")
	})
}

func TestTokenCacheIsNotifiedOfRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		current, rejected := ca.Token("cached"), []ca.Token{}
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: current}, nil }
			c.Authorities[0].TokenRejected = func(token ca.Token) { rejected = append(rejected, token); current = "fresh" }
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Err: ca.ErrUnauthenticated})
		})
		if got := e.requests(2); got[1].Token != "fresh" || len(rejected) != 1 || rejected[0] != "cached" {
			t.Errorf("%d were notified of", len(rejected))
		}
		e.held("default")
	})
}

func TestRejectedExchangeIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) {
				asked.Add(1)
				return ca.Bearer{}, ca.Errorf(ca.Unauthenticated, "the exchange says no")
			}
		})
		after(700 * time.Millisecond)
		e.requests(0)
		if n := asked.Load(); n != 1 {
			t.Errorf("the token was asked for %d times within a second", n)
		}
	})
}
