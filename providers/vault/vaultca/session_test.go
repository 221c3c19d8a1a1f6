package vaultca

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// asks signs once, and returns the requests to the server.
func (v *vault) asks(t *testing.T, c *CA, token ca.Token) string {
	t.Helper()
	v.paths()
	must(t, sign(t, c, token))
	return v.paths()
}

const (
	justSign  = "pki/sign/web"
	loginSign = "auth/approle/login pki/sign/web"
	renewSign = "auth/token/renew-self pki/sign/web"
)

func TestSessionIsRenewedAtTwoThirdsOfLease(t *testing.T) {
	v := newVault(t) // leases are an hour long
	c := v.open(t, v.settings())
	for _, step := range []struct {
		after time.Duration
		asks  string
	}{
		{0, loginSign},
		{0, justSign},
		{39 * time.Minute, justSign},
		{time.Minute, renewSign},
		{39 * time.Minute, justSign},
		{time.Minute, renewSign},
		{61 * time.Minute, loginSign}, // it ended unused
	} {
		v.pass(step.after)
		if asked := v.asks(t, c, ""); asked != step.asks {
			t.Errorf("after %s: asked for %q instead of %q", step.after, asked, step.asks)
		}
	}
}

func TestUnrenewableSessionIsReplaced(t *testing.T) {
	v := newVault(t)
	v.renewable = false
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.pass(40 * time.Minute)
	if asked := v.asks(t, c, ""); asked != loginSign {
		t.Errorf("asked for %q", asked)
	}
}

func TestSessionAtMaximumLifetimeIsReplaced(t *testing.T) {
	v := newVault(t)
	v.longest = time.Hour // renewing prolongs nothing
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.pass(40 * time.Minute)
	if asked := v.asks(t, c, ""); asked != "auth/token/renew-self "+loginSign {
		t.Errorf("asked for %q", asked)
	}
	if asked := v.asks(t, c, ""); asked != justSign {
		t.Errorf("then for %q", asked)
	}
}

func TestSessionWithoutEndIsKept(t *testing.T) {
	v := newVault(t)
	v.lease = 0
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.pass(1000 * time.Hour)
	if asked := v.asks(t, c, ""); asked != justSign {
		t.Errorf("asked for %q", asked)
	}
}

func TestForgottenSessionIsReplacedOnce(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.change(func() { clear(v.tokens) })
	if asked := v.asks(t, c, ""); asked != "pki/sign/web auth/token/lookup-self "+loginSign {
		t.Errorf("asked for %q", asked)
	}
	v.answerAll(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/login") {
			answer(w, map[string]any{"auth": map[string]any{"client_token": "hvs.new", "lease_duration": 3600}})
			return
		}
		refuse(w, http.StatusForbidden, "permission denied")
	})
	v.paths()
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnauthenticated) || strings.Count(v.paths(), "login") != 1 {
		t.Errorf("no session is any good: %v", err)
	}
}

func TestFailingRenewalIsRetriedWithPauses(t *testing.T) {
	v := newVault(t)
	var log testkit.Log
	settings := v.settings()
	settings.Log = log.Logger()
	c := v.open(t, settings)
	must(t, sign(t, c, ""))
	v.pass(40 * time.Minute)
	v.answerAll(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/sign/web") {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.sign(w, r, "pki/sign/web")
			return
		}
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed: "+r.Header.Get("X-Vault-Token"))
	})
	for _, want := range []string{renewSign, justSign, justSign} { // a login is not tried
		if asked := v.asks(t, c, ""); asked != want {
			t.Errorf("asked for %q instead of %q", asked, want)
		}
	}
	v.pass(renewPause)
	if asked := v.asks(t, c, ""); asked != renewSign {
		t.Errorf("after the pause: asked for %q", asked)
	}
	if said := log.Take(); !strings.Contains(said, "sealed") || strings.Contains(said, "hvs.") {
		t.Errorf("logged %s", said)
	}
	v.pass(20 * time.Minute) // the session has ended
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("%v", err)
	}
	v.answerAll(nil)
	if asked := v.asks(t, c, ""); asked != loginSign {
		t.Errorf("asked for %q", asked)
	}
}

func TestSessionIsUsedToItsEndWhenLoginFails(t *testing.T) {
	v := newVault(t)
	v.renewable = false
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.change(func() { v.secretID = "another-one-since" })
	v.pass(40 * time.Minute)
	if asked := v.asks(t, c, ""); asked != loginSign {
		t.Errorf("asked for %q", asked)
	}
	v.pass(20 * time.Minute)
	err := sign(t, c, "")
	if !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "login by approle") || strings.Contains(err.Error(), secretID) {
		t.Errorf("%v", err)
	}
	v.write(t, "secret-id", []byte("another-one-since")) // read for each login
	must(t, sign(t, c, ""))
}

func TestConcurrentRequestsShareOneLogin(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	v := newVault(t)
	c := v.open(t, v.settings())
	const many = 24
	together := func() {
		t.Helper()
		var wait sync.WaitGroup
		for range many {
			wait.Go(func() {
				if err := sign(t, c, ""); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	}
	together()
	_, err := c.refresh(t.Context(), keyOf(""), "") // a caller that comes just when it is done
	must(t, err)
	if asked := v.paths(); strings.Count(asked, "login") != 1 || strings.Count(asked, "sign/web") != many {
		t.Errorf("asked for %s", asked)
	}
	v.pass(45 * time.Minute)
	together()
	if asked := v.paths(); strings.Count(asked, "renew-self") != 1 {
		t.Errorf("asked for %s", asked)
	}
	v.change(func() { clear(v.tokens) })
	together()
	if asked := v.paths(); strings.Count(asked, "login") != 1 {
		t.Errorf("asked for %s", asked)
	}
}

func TestLoginWaitersShareErrorButNotCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions()
		failed := errors.New("sealed")
		first, cancel := context.WithCancel(t.Context())
		attempts := 0
		wait := func(ctx context.Context, wants, fails error) {
			_, err := s.once(ctx, sessionKey{}, func() (session, error) {
				attempts++
				time.Sleep(time.Second)
				return session{}, errors.Join(ctx.Err(), fails)
			})
			if !errors.Is(err, wants) {
				t.Errorf("%v instead of %v", err, wants)
			}
		}
		go wait(first, context.Canceled, nil)
		synctest.Wait()
		for range 3 { // one of them makes another attempt, when the first one's caller has gone
			go wait(t.Context(), failed, failed)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		wait(gone, ca.ErrCanceled, nil)
		other, err := s.once(t.Context(), sessionKey{1}, func() (session, error) { return session{token: "x"}, nil })
		if err != nil || other.token != "x" {
			t.Errorf("with another credential: %v", err)
		}
		synctest.Wait()
		cancel()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if attempts != 2 {
			t.Errorf("%d attempts", attempts)
		}
	})
}

func TestSessionsAreBoundedAndExpiredGoFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	s, now := newSessions(), time.Now()
	key := func(i int) sessionKey { return sessionKey{byte(i), byte(i >> 8)} }
	for i := range maxSessions {
		s.keep(session{key: key(i), ends: now.Add(time.Hour)}, now)
	}
	s.keep(session{key: key(maxSessions), ends: now.Add(2 * time.Hour)}, now)
	if len(s.held) != maxSessions {
		t.Errorf("%d are held", len(s.held))
	}
	now = now.Add(time.Hour)
	s.keep(session{key: key(1)}, now)
	if len(s.held) != 2 {
		t.Errorf("%d are held", len(s.held))
	}
}
