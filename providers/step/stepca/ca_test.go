package stepca

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const web = "spiffe://example.org/ns/default/sa/web"

func TestEachCSRIsSignedWithItsOwnToken(t *testing.T) {
	s := newStep(t)
	c := s.open(t, s.settings())
	for range 2 { // the second one has another token
		req, key := testkit.Request(t, web, "web.example.org")
		cert, err := c.CSRSign(t.Context(), req)
		must(t, err)
		chain, err := pki.ParseCertificates(cert.Chain)
		must(t, err)
		if !pki.SameKey(chain[0].PublicKey, key.Public()) || len(chain) < 2 || len(cert.Roots) != 0 {
			t.Errorf("%d certificates, roots %q", len(chain), cert.Roots)
		}
	}
	roots, err := c.Roots(t.Context())
	must(t, err)
	if string(roots) != string(s.Bundle().PEM()) {
		t.Errorf("roots: %s", roots)
	}
	s.Rotate()
	roots, err = c.Roots(t.Context())
	must(t, err)
	if string(roots) != string(s.Bundle().PEM()) {
		t.Error("a changed root was not noticed")
	}
}

func TestRootIsLeftOutOfChain(t *testing.T) {
	s := newStep(t)
	c := s.open(t, s.settings())
	req, _ := testkit.Request(t, web)
	leaf, err := s.CSRSign(t.Context(), req)
	must(t, err)
	root := string(s.Bundle().PEM())
	s.answerAll(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusCreated, signed{Chain: []string{string(leaf.Chain), root}})
	})
	cert, err := c.CSRSign(t.Context(), req)
	if err != nil || string(cert.Chain) != string(leaf.Chain) {
		t.Errorf("%s, %v", cert.Chain, err)
	}
	s.answerAll(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusCreated, signed{Chain: []string{root}})
	})
	if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrInternal) {
		t.Errorf("a root alone: %v", err)
	}
}

func TestTTLIsCappedByMaxTTL(t *testing.T) {
	s := newStep(t)
	settings := s.settings()
	settings.MaxTTL = 30 * time.Minute
	c := s.open(t, settings)
	for ttl, asked := range map[time.Duration]string{time.Hour: "30m0s", time.Minute: "1m0s", 0: ""} {
		req, _ := testkit.Request(t, web)
		req.TTL = ttl
		_, err := c.CSRSign(t.Context(), req)
		must(t, err)
		if got := s.sent[len(s.sent)-1]["notAfter"]; got != asked {
			t.Errorf("%s was asked for as %q", ttl, got)
		}
	}
}

func TestRootIsFetchedByFingerprint(t *testing.T) {
	s := newStep(t)
	settings := s.settings()
	settings.RootFile, settings.RootFingerprint = "", strings.ToUpper(sum(s.Certificate()))
	c := s.open(t, settings)
	req, _ := testkit.Request(t, web)
	_, err := c.CSRSign(t.Context(), req)
	must(t, err)

	other := pki.Fingerprint(s.Bundle().Certificates()[0])
	settings.RootFingerprint = other
	if _, err := Open(t.Context(), settings); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), other) {
		t.Errorf("a fingerprint that step-ca does not have: %v", err)
	}
	for _, page := range []string{"<html>404", "default backend - 404", `{"message":"no Route matched with those values"}`} { // as of ingresses
		s.answerAll(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(page))
		})
		if _, err := Open(t.Context(), settings); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("a proxy's reply: %v", err)
		}
	}
	s.answerAll(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"ca": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))})
	})
	if _, err := Open(t.Context(), settings); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "may not be your step-ca") {
		t.Errorf("another root than that of the fingerprint: %v", err)
	}
}

func TestServerWithOtherRootGetsNoToken(t *testing.T) {
	s := newStep(t)
	settings := s.settings()
	settings.RootFile = setting.File(s.write(t, "other.pem", s.Bundle().PEM()))
	req, _ := testkit.Request(t, web)
	_, err := s.open(t, settings).CSRSign(t.Context(), req)
	if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "not trusted") || s.paths() != "" {
		t.Errorf("%v, asked for %q", err, s.paths())
	}
}

func TestHeldCertificateRenewsOnlyItsNames(t *testing.T) {
	s := newStep(t)
	req, key := testkit.Request(t, web)
	cert, err := s.CSRSign(t.Context(), req)
	must(t, err)
	private, err := pki.EncodeKey(key)
	must(t, err)
	settings := s.settings()
	settings.ClientCertFile, settings.ClientKeyFile = filepath.Join(s.folder, "cert.pem"), s.write(t, "cert-key.pem", private)
	c := s.open(t, settings)

	next := func(want string, names ...string) {
		t.Helper()
		s.asked = nil
		req, _ := testkit.Request(t, web, names...)
		_, err := c.CSRSign(t.Context(), req)
		must(t, err)
		if s.paths() != want {
			t.Errorf("asked for %q instead of %q", s.paths(), want)
		}
	}
	next(signPath) // there is no certificate yet
	s.write(t, "cert.pem", cert.Chain)
	next(rekeyPath)
	next(signPath, "another.example.org") // step-ca would give it the names of the first
	s.rekeys = false
	next(rekeyPath + " " + signPath)
	s.write(t, "cert.pem", []byte("half a certificate"))
	next(signPath)
}

func TestRequestTokenIsOneTimeTokenWithoutKey(t *testing.T) {
	s := newStep(t)
	withKey := s.open(t, s.settings())
	settings := s.settings()
	settings.Provisioner, settings.KeyFile = "", ""
	c := s.open(t, settings)
	req, _ := testkit.Request(t, web)
	if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrUnauthenticated) {
		t.Errorf("without any token: %v", err)
	}
	token, err := withKey.oneTimeToken(req, time.Now())
	must(t, err)
	req.Token = token
	_, err = c.CSRSign(t.Context(), req)
	must(t, err)
	_, err = c.CSRSign(t.Context(), req)
	if !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "already used") {
		t.Errorf("the same token again: %v", err)
	}
}

func TestEncryptedKeyFileIsReadAndNeverShown(t *testing.T) {
	s := newStep(t)
	private := newJWK(t)
	public := private.Public()
	s.provisioner = &public
	plain, err := private.MarshalJSON()
	must(t, err)
	encrypter, err := jose.NewEncrypter(jose.A256GCM, jose.Recipient{Algorithm: jose.PBES2_HS256_A128KW, Key: []byte("correct horse"), PBES2Count: 1000}, nil)
	must(t, err)
	object, err := encrypter.Encrypt(plain)
	must(t, err)
	settings := s.settings()
	settings.KeyFile = setting.File(s.write(t, "key.jwe", []byte(object.FullSerialize())))
	settings.PasswordFile = setting.File(s.write(t, "password", []byte("correct horse\n")))
	req, _ := testkit.Request(t, web)
	_, err = s.open(t, settings).CSRSign(t.Context(), req)
	must(t, err)

	text, err := public.MarshalJSON()
	must(t, err)
	for what, broken := range map[string]struct{ key, password, says string }{
		"wrong password":     {object.FullSerialize(), "wrong", "does not decrypt"},
		"no password":        {object.FullSerialize(), "", "not a JWK"},
		"not encrypted":      {string(plain), "correct horse", "not encrypted"},
		"public":             {string(text), "", "public key"},
		"something else":     {"sesame, open", "", "not a JWK"},
		"key without its id": {strings.Replace(string(plain), `"kid":"one",`, "", 1), "", "kid"},
	} {
		settings := settings
		settings.KeyFile, settings.PasswordFile = setting.File(s.write(t, "broken", []byte(broken.key))), ""
		if broken.password != "" {
			settings.PasswordFile = setting.File(s.write(t, "password", []byte(broken.password)))
		}
		_, err := Open(t.Context(), settings)
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), broken.says) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestEachFailureHasReasonAndShowsNoToken(t *testing.T) {
	s := newStep(t)
	c := s.open(t, s.settings())
	for status, wants := range map[int]*ca.Error{
		400: ca.ErrInvalid, 401: ca.ErrUnauthenticated, 403: ca.ErrDenied, 404: ca.ErrInvalid, 409: ca.ErrAborted,
		429: ca.ErrRateLimited, 500: ca.ErrInternal, 502: ca.ErrUnavailable, 503: ca.ErrUnavailable, 307: ca.ErrInvalid,
	} {
		s.answerAll(func(w http.ResponseWriter, r *http.Request) {
			var body map[string]string
			_ = jsonOf(r, &body)
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "https://elsewhere.example.org/"+body["ott"])
			fail(w, status, "no: "+body["ott"]+"\n")
		})
		req, _ := testkit.Request(t, web)
		_, err := c.CSRSign(t.Context(), req)
		if !errors.Is(err, wants) || ca.RetryAfter(err) != 7*time.Second {
			t.Errorf("%d: %v, again after %s", status, err, ca.RetryAfter(err))
		}
		if strings.Contains(err.Error(), "eyJ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: %v", status, err)
		}
	}
	for what, reply := range map[string]string{
		"no JSON": "<html>", "no chain": `{"crt":""}`, "no certificate": `{"certChain":["x"]}`, "too much": `{"crt":"` + strings.Repeat("x", 3<<20) + `"}`,
	} {
		s.answerAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(reply)) })
		req, _ := testkit.Request(t, web)
		if _, err := c.CSRSign(t.Context(), req); !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %.300v", what, err)
		}
	}
}

func TestCallEndsWithItsCaller(t *testing.T) {
	s := newStep(t)
	c := s.open(t, s.settings())
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan struct{})
	s.answerAll(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]string
		_ = jsonOf(r, &body) // the server notices an end only when the body is read
		leave()
		<-r.Context().Done()
		close(gone)
	})
	req, _ := testkit.Request(t, web)
	if _, err := c.CSRSign(ctx, req); !errors.Is(err, ca.ErrCanceled) {
		t.Errorf("%v", err)
	}
	<-gone
}

func TestWrongSettingsAreNamed(t *testing.T) {
	good := Settings{URL: urlOf("https://ca:9000"), RootFile: "SYSTEM"}
	must(t, good.Validate())
	for says, change := range map[string]func(*Settings){
		"it takes https://host":      func(s *Settings) { s.URL = urlOf("http://ca:9000") },
		"url: it takes https://host": func(s *Settings) { s.URL = urlOf("https://me:secret@ca") },
		"root_file is \"\"":          func(s *Settings) { s.RootFile = "" },
		"set one of them":            func(s *Settings) { s.RootFingerprint = strings.Repeat("a", 64) },
		"64 hexadecimal":             func(s *Settings) { s.RootFile, s.RootFingerprint = "", "abc" },
		"provisioner is":             func(s *Settings) { s.Provisioner = "admin" },
		"password_file":              func(s *Settings) { s.PasswordFile = "x" },
		"max_ttl is -1h0m0s":         func(s *Settings) { s.MaxTTL = -time.Hour },
		"client_cert_file is \"":     func(s *Settings) { s.ClientCertFile = "x" },
	} {
		s := good
		change(&s)
		if _, err := Open(t.Context(), s); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
