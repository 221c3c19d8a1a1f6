package secret_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestEverySecretIsObtainedUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		leaf, roots := e.held("default"), e.held("ROOTCA")
		if leaf.Identity.String() != "spiffe://example.org/web" || leaf.Authority != "test" {
			t.Errorf("got %v of %q", leaf, leaf.Authority)
		}
		if len(roots.RootFingerprints) != 1 || leaf.RootFingerprint != roots.RootFingerprints[0] {
			t.Errorf("the leaf leads to %s, served are %v", leaf.RootFingerprint, roots.RootFingerprints)
		}
		for _, s := range e.Status() {
			if !s.Held || s.Rotations != 1 || s.Failure != nil {
				t.Errorf("status %+v", s)
			}
		}
	})
}

func TestRotationComesAtDrawnMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		first := e.held("default")
		if early, late := ttl*49/100, ttl*51/100; first.RenewAt.Before(e.now().Add(early)) || first.RenewAt.After(e.now().Add(late)) {
			t.Fatalf("renewal is due in %s", first.RenewAt.Sub(e.now()))
		}
		e.untilRenewal(-time.Second)
		e.requests(1)
		after(2 * time.Second)
		requests := e.requests(2)
		second := e.held("default")
		if second.Version == first.Version || bytes.Equal(second.Key, first.Key) {
			t.Error("the rotation kept the certificate or the key")
		}
		if requests[0].ID == requests[1].ID || bytes.Equal(requests[0].CSR, requests[1].CSR) {
			t.Error("the rotation is the same request")
		}
		if e.count(secret.Rotated, "") != 2 {
			t.Errorf("events: %v", e.events)
		}
	})
}

func TestRenewalsSpreadOverFifthOfLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Secrets[0].RenewJitter = 0
			for i := range 50 {
				c.Secrets = append(c.Secrets, extra(t, fmt.Sprint(i), fmt.Sprintf("spiffe://example.org/%d", i)))
			}
		})
		early, late := 0, 0
		for i := range 50 {
			switch wait := e.held(fmt.Sprint(i)).RenewAt.Sub(e.now()); {
			case wait < ttl*40/100 || wait > ttl*60/100:
				t.Fatalf("renewal is due in %s", wait)
			case wait < ttl*45/100:
				early++
			case wait > ttl*55/100:
				late++
			}
		}
		if early == 0 || late == 0 {
			t.Errorf("%d are early, %d late, of 50", early, late)
		}
	})
}

func TestBackdatedLeafIsNotRenewedEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) { c.Secrets[0].TTL = 10 * time.Second }) // begins 2 minutes ago
		e.requests(1)
		after(4 * time.Second)
		e.requests(1)
		after(2 * time.Second)
		e.requests(2)
	})
}

func TestHeldSecretsOutliveOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		first := e.held("default")
		told := 0
		stop, err := e.Watch(agent, "default", func(string) { told++ })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		e.ca.Always(catest.Fault{Err: ca.ErrUnavailable})

		after(first.NotAfter.Sub(e.now()) - time.Second)
		if got := e.held("default"); got != first {
			t.Errorf("%v is served, which is not the one held", got)
		}
		if s := e.status("default"); s.Failure == nil || s.Failure.Reason != "unavailable" || s.Failure.NextTry.IsZero() {
			t.Errorf("failure %+v", s.Failure)
		}
		after(2 * time.Second)
		e.notReady("default")
		if s := e.status("default"); !s.ExpiredSince.Equal(first.NotAfter) || s.Held {
			t.Errorf("status %+v", s)
		}
		after(time.Hour)
		if told != 0 || e.count(secret.Expired, "") != 1 {
			t.Errorf("notified %d times, %d expiries", told, e.count(secret.Expired, ""))
		}

		e.ca.Always(catest.Fault{})
		after(100 * time.Second) // the longest backoff while nothing has been held for long
		if e.held("default") == first || told != 1 {
			t.Errorf("notified %d times", told)
		}
		if s := e.status("default"); s.Failure != nil || !s.ExpiredSince.IsZero() {
			t.Errorf("status %+v", s)
		}
	})
}

func TestAuthorityIsRetriedInLastMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		first := e.held("default")
		e.untilRenewal(-time.Second)
		e.ca.Always(catest.Fault{Err: ca.Errorf(ca.Unavailable, "down")})
		after(first.NotAfter.Sub(e.now()) - 30*time.Second)
		e.ca.Always(catest.Fault{})
		after(29 * time.Second)
		if e.held("default") == first {
			t.Error("an authority that came back before the end was not asked in time")
		}
	})
}

func TestClockJumps(t *testing.T) {
	for name, c := range map[string]struct {
		jump     time.Duration
		requests int
	}{
		"back makes no second request":  {-20 * time.Minute, 1},
		"forward renews":                {40 * time.Minute, 2},
		"a suspend past the end renews": {3 * time.Hour, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, nil)
				e.requests(1)
				e.jump.Store(int64(c.jump))
				after(31 * time.Second)
				e.requests(c.requests)
				e.held("default")
			})
		})
	}
}

func TestSuspendEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Err: ca.Errorf(ca.Denied, "no")})
		})
		e.requests(1)
		e.jump.Store(int64(time.Hour))
		after(31 * time.Second)
		e.requests(2)
	})
}

func TestStuckClientCostsOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{free: make(chan struct{})}
		e := newEngine(t, client(func(c *catest.CA) ca.Client { s.Client = c; return s }))
		first := e.held("default")
		s.stuck.Store(true)
		e.untilRenewal(10 * time.Minute)
		if n := s.waiting.Load(); n != 1 {
			t.Errorf("%d calls are stuck", n)
		}
		if e.held("default") != first || e.count(secret.Failed, "deadline exceeded") < 2 {
			t.Error("the hang is not told as such")
		}
		s.stuck.Store(false)
		close(s.free)
		after(2 * time.Minute)
		if e.held("default") == first {
			t.Error("rotation did not work again")
		}
	})
}

func TestLeafBeginningLaterIsServedWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Break: func(d *catest.Draft) {
				d.Leaf.NotBefore = d.Leaf.NotBefore.Add(6 * time.Minute) // in 4 minutes
			}})
		})
		e.notReady("default")
		after(4*time.Minute - time.Second)
		e.notReady("default")
		after(2 * time.Second)
		e.held("default")
		e.requests(1)
	})
}
