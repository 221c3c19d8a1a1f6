package secret_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// supply is a source of tokens that a test replaces.
type supply struct {
	mu    sync.Mutex
	now   ca.Bearer
	err   error
	reads int
}

func (s *supply) Token(context.Context) (ca.Bearer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.now, s.err
}

func (s *supply) set(token ca.Token, life time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.err = ca.Bearer{Token: token, Expiry: time.Now().Add(life)}, err
}

func (s *supply) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// supplied starts an engine, its renewals due after half an hour, with a first token.
func supplied(t *testing.T, life time.Duration) (*engine, *supply) {
	t.Helper()
	s := &supply{}
	s.set("first", life, nil)
	e := newEngine(t, func(c *secret.Config) { c.Authorities[0].Token = s.Token })
	e.requests(1)
	return e, s
}

// suppliedReloading is the same of an engine whose list changes.
func suppliedReloading(t *testing.T, life time.Duration) (*reloading, *supply) {
	t.Helper()
	s, r := &supply{}, &reloading{}
	s.set("first", life, nil)
	r.engine = newEngine(t, func(c *secret.Config) {
		c.Authorities[0].Token = s.Token
		r.config = *c
	})
	r.requests(1)
	return r, s
}

func TestTokenExpiringBeforeRenewalBringsItForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 10*time.Minute)
		if end := e.status("default").TokenExpiry; !end.Equal(e.now().Add(10 * time.Minute)) {
			t.Errorf("the status shows that the token ends at %s", end)
		}
		after(8 * time.Minute)
		e.requests(1)
		after(2*time.Minute - time.Second)
		if got := e.requests(2); got[1].Token != "first" || got[0].ID == got[1].ID {
			t.Error("the rotation was not made with the last token")
		}
		after(15 * time.Minute)
		e.requests(2) // once for that token: more would gain nothing
		if n := s.count(); n != 2 {
			t.Errorf("the token was read %d times", n)
		}
	})
}

func TestSuccessorOfSpentTokenIsReadOnKick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 10*time.Minute)
		after(11 * time.Minute)
		e.requests(2) // brought forward; the token has ended
		s.set("next", time.Hour, nil)
		e.Kick("test")
		if end := e.status("default").TokenExpiry; !end.Equal(e.now().Add(time.Hour)) {
			t.Errorf("the status shows that the token ends at %s", end)
		}
		reads := s.count()
		e.Kick("test")
		if e.requests(2); s.count() != reads {
			t.Error("a token that is good was read again")
		}
	})
}

func TestLaterTokenKeepsRenewalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 10*time.Minute)
		due := e.held("default").RenewAt
		for range 2 {
			after(5 * time.Minute)
			s.set("next", 10*time.Minute, nil)
		}
		after(5 * time.Minute)
		e.requests(1)
		s.set("last", time.Hour, nil)
		after(due.Sub(e.now()) - time.Second)
		e.requests(1)
		after(2 * time.Second)
		if got := e.requests(2); got[1].Token != "last" {
			t.Error("the rotation was not made with the latest token")
		}
	})
}

func TestTokenOutlivingRenewalIsNotReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 40*time.Minute)
		after(25 * time.Minute)
		e.requests(1)
		if n := s.count(); n != 1 {
			t.Errorf("the token was read %d times", n)
		}
	})
}

func TestMissingTokenServesHeldAndReportsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 10*time.Minute)
		held := e.held("default")
		s.set("", 0, ca.Errorf(ca.Unavailable, "token file: /token is empty"))
		after(20 * time.Minute)
		if e.requests(1); e.held("default") != held {
			t.Error("something else is held")
		}
		status := e.status("default")
		if status.Failure == nil || !strings.Contains(status.Failure.Text, "/token is empty") || !status.Item.NotAfter.Equal(held.NotAfter) {
			t.Errorf("the status is %+v", status)
		}
		if want := "held_until=" + held.NotAfter.Format(time.RFC3339); !strings.Contains(e.logged(), want[:len(want)-6]) {
			t.Errorf("the log does not say %s:\n%s", want, e.logged())
		}
		if e.count(secret.Failed, "unavailable") == 0 {
			t.Error("no failure was notified")
		}
		s.set("healed", time.Hour, nil)
		after(time.Minute + 20*time.Second)
		if e.requests(1); e.status("default").Failure != nil {
			t.Error("the failure outlived its cause")
		}
	})
}

func TestFailedEarlyRenewalIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := supplied(t, 10*time.Minute)
		e.ca.Next(2, catest.Fault{Err: ca.ErrUnavailable})
		after(10*time.Minute - time.Second)
		if got := e.requests(4); got[1].ID != got[3].ID {
			t.Error("a retry is another order")
		}
	})
}

func TestReloadKeepsTokenExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := suppliedReloading(t, 10*time.Minute)
		end, due := r.status("default").TokenExpiry, r.held("default").RenewAt
		after(time.Minute)
		r.change(nothing)
		if got := r.status("default").TokenExpiry; !got.Equal(end) || !r.held("default").RenewAt.Equal(due) {
			t.Errorf("the token is to end at %s, not %s", got, end)
		}
		r.requests(1)
		after(8*time.Minute + 10*time.Second)
		r.requests(2) // brought forward, as without the reload
		r.change(nothing)
		after(48 * time.Second)
		r.requests(2) // once for that token
		if n := s.count(); n != 4 {
			t.Errorf("the token was read %d times", n)
		}
	})
}

func TestReloadTakesNewTokenSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, old := suppliedReloading(t, 10*time.Minute)
		other := &supply{}
		other.set("other", 20*time.Minute, nil)
		r.change(func(c *secret.Config) { c.Authorities[0].Token = other.Token })
		if got := r.status("default").TokenExpiry; !got.Equal(r.now().Add(20 * time.Minute)) {
			t.Errorf("the token is to end at %s", got)
		}
		after(15 * time.Minute)
		r.requests(1) // it is the other's end that counts
		after(5*time.Minute - time.Second)
		if got := r.requests(2); got[1].Token != "other" || old.count() != 1 {
			t.Errorf("asked with another token; the old source was read %d times", old.count())
		}
		r.change(func(c *secret.Config) { c.Authorities[0].Token = nil })
		if got := r.status("default").TokenExpiry; !got.IsZero() {
			t.Errorf("without a token it is to end at %s", got)
		}
		r.requests(2)
	})
}

func TestReloadWithEmptyTokenSourceServesHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := suppliedReloading(t, 10*time.Minute)
		held := r.held("default")
		dry := &supply{err: ca.Errorf(ca.Unavailable, "token file: /token is empty")}
		r.change(func(c *secret.Config) { c.Authorities[0].Token = dry.Token })
		if f := r.status("default").Failure; f == nil || !strings.Contains(f.Text, "/token is empty") || r.held("default").Version != held.Version {
			t.Errorf("the failure is %+v", f)
		}
		dry.set("healed", time.Hour, nil)
		after(5 * time.Second)
		if r.requests(1); r.status("default").Failure != nil {
			t.Error("the failure outlived its cause")
		}
	})
}

func TestFallbackTokenDoesNotBringRenewalForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &supply{}, &supply{}
		first.set("first", 2*time.Hour, nil)
		second.set("second", 5*time.Minute, nil)
		var other *catest.CA
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = first.Token
			other = catest.NewCA(catest.Options{})
			c.Authorities = append(c.Authorities, secret.Authority{Name: "other", Client: other, Token: second.Token})
			c.Secrets[0].Authorities = []string{"test", "other"}
			c.Secrets[1].Authorities = []string{"test", "other"}
		})
		e.requests(1)
		e.ca.Next(1000, catest.Fault{Err: ca.ErrUnavailable})
		e.untilRenewal(time.Minute)
		if by := e.held("default").Authority; by != "other" {
			t.Fatalf("signed by %s", by)
		}
		asked := len(other.Requests())
		after(10 * time.Minute)
		if n := len(other.Requests()); n != asked || !e.status("default").TokenExpiry.IsZero() {
			t.Errorf("who stands in was asked %d more times", n-asked)
		}
	})
}

// A certificate that must be replaced is asked for whatever is known of the token: who
// only looks for a later one would come back with nothing, and look again at once.
func TestLostAnchorReadsTokenOnlyToRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var anchor atomic.Pointer[pki.Bundle]
		s := &supply{}
		s.set("first", time.Hour, nil)
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = s.Token
			c.Secrets[0].Anchor = anchor.Load
			anchor.Store(c.Authorities[0].Client.(*catest.CA).Bundle())
		})
		e.requests(1)
		e.ca.Rotate()
		anchor.Store(e.ca.Bundle())
		after(time.Minute)
		if e.requests(2); s.count() != 2 {
			t.Errorf("the token was read %d times", s.count())
		}
	})
}
