package vaultca

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// asks signs once, and tells what the server was asked for.
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

func TestASessionIsRenewedWhenTwoThirdsOfItsLeaseHavePassed(t *testing.T) {
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

func TestASessionThatCannotBeRenewedIsFollowedByAnother(t *testing.T) {
	v := newVault(t)
	v.renewable = false
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.pass(40 * time.Minute)
	if asked := v.asks(t, c, ""); asked != loginSign {
		t.Errorf("asked for %q", asked)
	}
}

func TestASessionAtItsLongestLifeIsFollowedByAnother(t *testing.T) {
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

func TestASessionWithoutAnEndIsKept(t *testing.T) {
	v := newVault(t)
	v.lease = 0
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.pass(1000 * time.Hour)
	if asked := v.asks(t, c, ""); asked != justSign {
		t.Errorf("asked for %q", asked)
	}
}

func TestASessionThatTheServerForgotIsReplacedOnce(t *testing.T) {
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

func TestWhileASessionLastsAServerThatFailsIsAskedNowAndThen(t *testing.T) {
	v := newVault(t)
	var log bytes.Buffer
	settings := v.settings()
	settings.Log = slog.New(slog.NewTextHandler(&log, nil))
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
	if said := log.String(); !strings.Contains(said, "sealed") || strings.Contains(said, "hvs.") {
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

func TestASessionIsUsedToItsEndWhereLoginIsRefused(t *testing.T) {
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

func TestManyRequestsAtOnceCostOneLogin(t *testing.T) {
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

func TestWhoWaitsForALoginSharesItsErrorButNotItsEnd(t *testing.T) {
	s := newSessions()
	failed := errors.New("sealed")
	begun, end := make(chan struct{}), make(chan struct{})
	first, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := s.once(first, sessionKey{}, func() (session, error) {
			close(begun)
			<-end
			return session{}, first.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
	})
	<-begun
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.once(gone, sessionKey{}, nil); !errors.Is(err, ca.ErrCanceled) {
		t.Errorf("one that does not wait: %v", err)
	}
	other, err := s.once(t.Context(), sessionKey{1}, func() (session, error) { return session{token: "x"}, nil })
	if err != nil || other.token != "x" {
		t.Errorf("one with another credential: %v", err)
	}
	wait.Go(func() { // it makes an attempt of its own when the first one's caller has gone
		_, err := s.once(t.Context(), sessionKey{}, func() (session, error) { return session{}, failed })
		if !errors.Is(err, failed) {
			t.Errorf("the second: %v", err)
		}
	})
	cancel()
	close(end)
	wait.Wait()
}

func TestEachWorkloadsCredentialHasASessionOfItsOwn(t *testing.T) {
	v := newVault(t)
	other := strings.Replace(jwt, "c2ln", "b3Ro", 1)
	v.jwts = append(v.jwts, other)
	settings := v.settings()
	settings.Login = Login{Method: Kubernetes, Role: "agent"}
	c := v.open(t, settings)
	for range 2 {
		must(t, sign(t, c, ca.Token(jwt)))
		must(t, sign(t, c, ca.Token(other)))
	}
	if asked := v.paths(); strings.Count(asked, "kubernetes/login") != 2 {
		t.Errorf("asked for %s", asked)
	}
	forged := jwt + "x"
	err := sign(t, c, ca.Token(forged))
	if !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "login by kubernetes") || strings.Contains(err.Error(), "eyJ") {
		t.Errorf("%v", err)
	}
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
	settings.Login.TokenFile = v.write(t, "jwt", []byte(jwt))
	must(t, sign(t, v.open(t, settings), "of another's"))
}

func TestTheClientCertificateIsALogin(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{Method: Cert, Role: "agent", Mount: "tls/cert"}
	req, key := request(t)
	cert, err := v.CA.CSRSign(t.Context(), req)
	must(t, err)
	private, err := pki.EncodeKey(key)
	must(t, err)
	settings.ClientCertFile, settings.ClientKeyFile = v.write(t, "cert.pem", cert.Chain), v.write(t, "key.pem", private)
	if asked := v.asks(t, v.open(t, settings), ""); asked != "auth/tls/cert/login pki/sign/web" {
		t.Errorf("asked for %q", asked)
	}
	settings.Login.Role = ""
	if err := sign(t, v.open(t, settings), ""); !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "invalid certificate") {
		t.Errorf("%v", err)
	}
}

func TestATokenInAFileIsRenewedWhetherOrNotSomethingIsSigned(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{TokenFile: filepath.Join(v.folder, "token")}
	settings.BundleFile = v.write(t, "bundle.pem", v.Bundle().PEM())
	v.tokens[rootToken] = &given{ends: v.clock.Add(time.Hour), last: v.clock.Add(2 * time.Hour)}
	c := v.open(t, settings)
	roots := func(asks string) {
		t.Helper()
		_, err := c.Roots(t.Context())
		must(t, err)
		if asked := v.paths(); asked != asks {
			t.Errorf("asked for %q instead of %q", asked, asks)
		}
	}
	roots("auth/token/lookup-self")
	roots("")
	v.pass(40 * time.Minute)
	roots("auth/token/renew-self")
	v.pass(80 * time.Minute) // it has ended
	roots("auth/token/lookup-self")
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
	v.change(func() { v.tokens["hvs.the-next-one"] = &given{} })
	v.write(t, "token", []byte("hvs.the-next-one"))
	must(t, sign(t, c, ""))
	must(t, os.Remove(filepath.Join(v.folder, "token")))
	v.paths()
	roots("") // which are told all the same
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "login.token_file") {
		t.Errorf("%v", err)
	}
}

func TestATokenAtHandAtItsLongestLifeIsUsedToItsEnd(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{}
	v.tokens[rootToken] = &given{ends: v.clock.Add(time.Hour), last: v.clock.Add(time.Hour)}
	c := v.open(t, settings)
	must(t, sign(t, c, rootToken))
	v.pass(50 * time.Minute)
	must(t, sign(t, c, rootToken))
	v.pass(10 * time.Minute)
	if err := sign(t, c, rootToken); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
}

func TestASecretThatCannotBeUsedIsNamedByItsFile(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	c := v.open(t, settings)
	for says, content := range map[string]string{"is empty": " \n", "blanks": "sesame\nsesame", "more than": strings.Repeat("x", 2<<20)} {
		v.write(t, "secret-id", []byte(content))
		err := sign(t, c, "")
		if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), settings.Login.SecretIDFile) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %.300v", says, err)
		}
	}
}

func TestALoginThatIsAnsweredWithoutATokenIsTheServersFault(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	for _, body := range []string{`{"auth":null}`, `{}`, `{"auth":{"client_token":"two\nlines"}}`, `{"auth":{"lease_duration":"soon"}}`, `<html>`} {
		v.answerAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		if err := sign(t, c, ""); !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestALoginThatEchoesItsSecretShowsItNowhere(t *testing.T) {
	v := newVault(t)
	var log bytes.Buffer
	settings := v.settings()
	settings.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := v.open(t, settings)
	for status, wants := range map[int]*ca.Error{400: ca.ErrUnauthenticated, 403: ca.ErrUnauthenticated, 500: ca.ErrInternal, 503: ca.ErrUnavailable} {
		v.answerAll(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			refuse(w, status, string(body))
		})
		if err := sign(t, c, ""); !errors.Is(err, wants) || strings.Contains(err.Error()+log.String(), secretID) {
			t.Errorf("%d: %v", status, err)
		}
	}
	v.answerAll(nil)
	must(t, sign(t, c, ""))
	if said := log.String(); !strings.Contains(said, "method=approle") || strings.Contains(said, "hvs.") {
		t.Errorf("logged %s", said)
	}
}

func TestCloseEndsTheSessionsThatWeLoggedInFor(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	v.paths()
	must(t, c.Close())
	must(t, c.Close())
	if asked := v.paths(); asked != "auth/token/revoke-self" || len(v.tokens) != 1 {
		t.Errorf("asked for %q, %d tokens are left", asked, len(v.tokens))
	}
	settings := v.settings()
	settings.Login = Login{}
	c = v.open(t, settings)
	must(t, sign(t, c, rootToken))
	v.paths()
	must(t, c.Close())
	if asked := v.paths(); asked != "" {
		t.Errorf("another's token: asked for %q", asked)
	}
}

func TestCloseWaitsTwoSecondsAtMost(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{Method: Kubernetes, Role: "agent"}
	v.jwts = []string{"a", "b", "c"}
	c := v.open(t, settings)
	for _, token := range v.jwts {
		must(t, sign(t, c, ca.Token(token)))
	}
	v.answerAll(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	begun := time.Now()
	must(t, c.Close())
	if took := time.Since(begun); took > 2*closeTime {
		t.Errorf("it took %s", took)
	}
}

func TestSessionsAreBoundedAndThoseThatEndedGoFirst(t *testing.T) {
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
