package vaultca

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestEachWorkloadCredentialHasItsOwnSession(t *testing.T) {
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
	settings.Login.TokenFile = setting.File(v.write(t, "jwt", []byte(jwt)))
	must(t, sign(t, v.open(t, settings), "of another's"))
}

func TestClientCertificateIsALogin(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{Method: Cert, Role: "agent", Mount: "tls/cert"}
	req, key := testkit.Request(t, web)
	cert, err := v.CSRSign(t.Context(), req)
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

func TestTokenFileIsRenewedWithoutSigning(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{TokenFile: setting.File(filepath.Join(v.folder, "token"))}
	settings.BundleFile = setting.Certificates(v.write(t, "bundle.pem", v.Bundle().PEM()))
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
	roots("") // which are returned all the same
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "login.token_file") {
		t.Errorf("%v", err)
	}
}

func TestUnrenewableTokenIsUsedToItsEnd(t *testing.T) {
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

func TestUnusableSecretIsNamedByFile(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	c := v.open(t, settings)
	for says, content := range map[string]string{"is empty": " \n", "blanks": "open\nsesame", "more than": strings.Repeat("x", 2<<20)} {
		v.write(t, "secret-id", []byte(content))
		err := sign(t, c, "")
		if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), string(settings.Login.SecretIDFile)) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %.300v", says, err)
		}
	}
}

func TestLoginAnswerWithoutTokenIsServerFault(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	for _, body := range []string{`{"auth":null}`, `{}`, `{"auth":{"client_token":"two\nlines"}}`, `{"auth":{"lease_duration":"soon"}}`, `<html>`} {
		v.answerAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		if err := sign(t, c, ""); !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestSecretEchoedByLoginIsNotShown(t *testing.T) {
	v := newVault(t)
	var log testkit.Log
	settings := v.settings()
	settings.Log = log.Logger()
	c := v.open(t, settings)
	for status, wants := range map[int]*ca.Error{400: ca.ErrUnauthenticated, 403: ca.ErrUnauthenticated, 500: ca.ErrInternal, 503: ca.ErrUnavailable} {
		v.answerAll(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			refuse(w, status, string(body))
		})
		if err := sign(t, c, ""); !errors.Is(err, wants) || strings.Contains(err.Error()+log.Take(), secretID) {
			t.Errorf("%d: %v", status, err)
		}
	}
	v.answerAll(nil)
	must(t, sign(t, c, ""))
	if said := log.Take(); !strings.Contains(said, "method=approle") || strings.Contains(said, "hvs.") {
		t.Errorf("logged %s", said)
	}
}

func TestCloseRevokesOwnSessions(t *testing.T) {
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
	v.tokens[rootToken] = &given{ends: v.clock.Add(time.Hour), last: v.clock.Add(24 * time.Hour)}
	c = v.open(t, settings)
	must(t, sign(t, c, rootToken))
	v.pass(45 * time.Minute)
	must(t, sign(t, c, rootToken)) // it is renewed
	v.paths()
	must(t, c.Close())
	if asked := v.paths(); asked != "" {
		t.Errorf("another's token: asked for %q", asked)
	}
}

func TestCloseWaitsAtMostTwoSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
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
	if took := time.Since(begun); took > 20*closeTime {
		t.Errorf("it took %s", took)
	}
}
