package secret_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
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

func TestATokenThatEndsBeforeTheRenewalBringsThatForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 10*time.Minute)
		if end := e.status("default").TokenExpiry; !end.Equal(e.now().Add(10 * time.Minute)) {
			t.Errorf("the status says that the token ends at %s", end)
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

func TestALaterTokenLeavesTheRenewalWhereItWas(t *testing.T) {
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

func TestATokenThatOutlivesTheRenewalOrSaysNothingIsNotLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := supplied(t, 40*time.Minute)
		after(25 * time.Minute)
		e.requests(1)
		if n := s.count(); n != 1 {
			t.Errorf("the token was read %d times", n)
		}
	})
}

func TestWhileThereIsNoTokenWhatIsHeldIsServedAndItsEndIsSaid(t *testing.T) {
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
			t.Error("no failure was told")
		}
		s.set("healed", time.Hour, nil)
		after(time.Minute + 20*time.Second)
		if e.requests(1); e.status("default").Failure != nil {
			t.Error("the failure outlived its cause")
		}
	})
}

func TestARenewalThatWasBroughtForwardAndFailedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := supplied(t, 10*time.Minute)
		e.ca.Next(2, catest.Fault{Err: ca.ErrUnavailable})
		after(10*time.Minute - time.Second)
		if got := e.requests(4); got[1].ID != got[3].ID {
			t.Error("a retry is another order")
		}
	})
}
