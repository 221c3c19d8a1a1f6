package exchange_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
	"github.com/countersign-dev/countersign/sdk/token/exchange"
)

func silent() *log.Logger { return log.New(io.Discard, "", 0) }

func TestExchangeFollowsRFC8693(t *testing.T) {
	server := serve(t, says(http.StatusOK, good))
	client := server.client(t, func(c *exchange.Config) { c.Actor = token.Static{Value: "the-actor"} })
	before := time.Now()
	got, err := client.ExchangeToken(t.Context(), ca.TokenRequest{
		SubjectToken: subject, SubjectTokenType: "urn:x:subject", Audience: "an audience", Resource: "https://ca.example.org/",
		Scopes: []string{"one", "two"}, RequestedType: "urn:x:requested",
	})
	if err != nil || got.AccessToken != "given" || got.IssuedType != "urn:ietf:params:oauth:token-type:access_token" {
		t.Fatalf("%+v, %v", got, err)
	}
	if life := got.Expiry.Sub(before); life < time.Hour || life > time.Hour+time.Minute {
		t.Errorf("it lives %s", life)
	}
	form, header, _ := server.asked()
	for name, want := range map[string]string{
		"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": subject, "subject_token_type": "urn:x:subject",
		"audience": "an audience", "resource": "https://ca.example.org/", "scope": "one two", "requested_token_type": "urn:x:requested",
		"actor_token": "the-actor", "actor_token_type": token.TypeJWT,
	} {
		if form.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, form.Get(name), want)
		}
	}
	if len(form) != 9 || header.Get("Authorization") != "" || header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		t.Errorf("the request has %v, %v", form, header)
	}
}

func TestUnsetParametersAreNotSent(t *testing.T) {
	server := serve(t, says(http.StatusOK, good))
	if _, err := server.client(t, nil).ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: subject}); err != nil {
		t.Fatal(err)
	}
	form, _, _ := server.asked()
	if len(form) != 3 || form.Get("subject_token_type") != token.TypeJWT {
		t.Errorf("the form has %d fields", len(form))
	}
}

func TestClientAuthenticatesBySecret(t *testing.T) {
	server := serve(t, says(http.StatusOK, good))
	file := write(t, filepath.Join(t.TempDir(), "secret"), "s+c/r%t\n")
	auth := exchange.Auth{ClientID: "agent:1", SecretFile: file}
	if _, err := trade(t.Context(), server.client(t, func(c *exchange.Config) { c.Auth = auth })); err != nil {
		t.Fatal(err)
	}
	form, header, _ := server.asked()
	if user, password, _ := (&http.Request{Header: header}).BasicAuth(); user != "agent%3A1" || password != "s%2Bc%2Fr%25t" || form.Has("client_id") {
		t.Errorf("in the header: %s, %s", user, password)
	}
	auth.SecretInBody = true
	write(t, file, "rotated")
	if _, err := trade(t.Context(), server.client(t, func(c *exchange.Config) { c.Auth = auth })); err != nil {
		t.Fatal(err)
	}
	if form, header, _ := server.asked(); form.Get("client_id") != "agent:1" || form.Get("client_secret") != "rotated" || header.Get("Authorization") != "" {
		t.Errorf("in the body: %v", form)
	}
	auth.SecretFile = file + "-none"
	if _, err := trade(t.Context(), server.client(t, func(c *exchange.Config) { c.Auth = auth })); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "secret-none") {
		t.Errorf("a missing secret: %v", err)
	}
}

func TestClientAuthenticatesByCertificate(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || r.TLS.PeerCertificates[0].SerialNumber.Int64() != 7 || r.PostForm.Get("client_id") != "agent" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		says(http.StatusOK, good)(w, r)
	})
	server.TLS.ClientAuth = tls.RequestClientCert
	cert, key := certtest.SelfSigned(t, &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour)}).Files(t)
	client := server.client(t, func(c *exchange.Config) { c.Auth = exchange.Auth{ClientID: "agent", CertFile: cert, KeyFile: key} })
	if _, err := trade(t.Context(), client); err != nil {
		t.Error(err)
	}
	write(t, key, "broken")
	if _, err := trade(t.Context(), client); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), key) {
		t.Errorf("a broken key: %v", err)
	}
	if _, err := trade(t.Context(), server.client(t, nil)); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("no certificate: %v", err)
	}
}

func TestServerIsVerified(t *testing.T) {
	server := serve(t, says(http.StatusOK, good))
	for name, file := range map[string]string{"the system's roots": "", "a missing file": "/none", "no PEM": write(t, filepath.Join(t.TempDir(), "f"), "x")} {
		_, err := trade(t.Context(), server.client(t, func(c *exchange.Config) { c.RootFile = file }))
		if !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, calls := server.asked(); calls != 0 {
		t.Error("the token was sent to a server that was not verified")
	}
}

func TestSlowServerIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	free := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-free
	})
	defer close(free)
	_, err := trade(t.Context(), server.client(t, func(c *exchange.Config) { c.Timeout = 200 * time.Millisecond }))
	if !errors.Is(err, ca.ErrDeadline) || ca.ActionFor(err) != ca.Wait {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := trade(ctx, server.client(t, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that went away: %v", err)
	}
}

func TestAbsentServerIsUnavailable(t *testing.T) {
	server := serve(t, says(http.StatusOK, good))
	client := server.client(t, nil)
	server.Close()
	if _, err := trade(t.Context(), client); !errors.Is(err, ca.ErrUnavailable) {
		t.Error(err)
	}
}

func TestActorWithoutTokenPreventsExchange(t *testing.T) {
	server := serve(t, says(http.StatusOK, good))
	for _, actor := range []token.Source{token.File{Path: "/none"}, token.Static{}} {
		if _, err := trade(t.Context(), server.client(t, func(c *exchange.Config) { c.Actor = actor })); !errors.Is(err, ca.ErrUnavailable) {
			t.Error(err)
		}
	}
	if _, _, calls := server.asked(); calls != 0 {
		t.Error("it was exchanged without the actor")
	}
}

func TestPlainHTTPIsAllowedForLoopbackOnly(t *testing.T) {
	plain := httptest.NewServer(says(http.StatusOK, good))
	defer plain.Close()
	client, err := exchange.New(exchange.Config{URL: plain.URL, AllowLoopbackHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := trade(t.Context(), client); got.AccessToken != "given" || err != nil {
		t.Error(err)
	}
}

func TestImpossibleConfigIsRefusedAtStart(t *testing.T) {
	const url = "https://sts.example.org/token"
	for says, config := range map[string]exchange.Config{
		"write https://HOST/PATH":      {URL: "sts"},
		"write https://HOST/PATH ":     {URL: "https://:443/token"}, // which would be this machine
		"write https://HOST/PATH  ":    {URL: url + "#part"},
		"https only":                   {URL: "http://sts.example.org/"},
		"https only ":                  {URL: "http://localhost/", AllowLoopbackHTTP: true},
		"where that is allowed":        {URL: "http://127.0.0.1:1/"},
		"does not parse":               {URL: "https://u:password@h:x/"},
		"has a user":                   {URL: "https://u:password@h/"},
		"both its file and its key's":  {URL: url, Auth: exchange.Auth{CertFile: "c"}},
		"not by both":                  {URL: url, Auth: exchange.Auth{ClientID: "i", SecretFile: "s", CertFile: "c", KeyFile: "k"}},
		"needs the client's ID":        {URL: url, Auth: exchange.Auth{SecretFile: "s"}},
		"no client secret to send":     {URL: url, Auth: exchange.Auth{SecretInBody: true}},
		"needs a secret's file, or":    {URL: url, Auth: exchange.Auth{ClientID: "i"}},
		"both its file and its key's ": {URL: url, Auth: exchange.Auth{KeyFile: "k"}},
		"https only  ":                 {URL: "ftp://127.0.0.1/", AllowLoopbackHTTP: true},
		"the timeout is -1s; use more": {URL: url, Timeout: -time.Second},
	} {
		if _, err := exchange.New(config); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(says)) || strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestTokenNearExpiryIsExchangedAgain(t *testing.T) {
	server := serve(t, says(http.StatusOK, good)) // for an hour
	now := time.Now
	cache := token.NewCache(server.client(t, nil), token.CacheOptions{Now: func() time.Time { return now() }})
	for _, step := range []struct {
		ahead time.Duration
		calls int
	}{{0, 1}, {50 * time.Minute, 1}, {56 * time.Minute, 2}} {
		now = func() time.Time { return time.Now().Add(step.ahead) }
		if _, err := cache.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: subject}); err != nil {
			t.Fatal(err)
		}
		if _, _, calls := server.asked(); calls != step.calls {
			t.Errorf("after %s: %d exchanges, want %d", step.ahead, calls, step.calls)
		}
	}
}
