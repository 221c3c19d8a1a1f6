package estca

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// sign asks for a certificate of web and verifies it as an agent does.
func sign(t *testing.T, s *est, c *CA) (reply ca.Certificate, key any) {
	t.Helper()
	req, signer := testkit.Request(t, web, "web.example.org")
	req.Token = password
	reply, err := c.CSRSign(t.Context(), req)
	must(t, err)
	if reply.Roots != nil {
		t.Error("the reply has roots, which may not be those of bundle_file")
	}
	check := testkit.Check(t, req, signer)
	check.AskedUntil = time.Time{}
	if check.Roots, err = pki.ParseBundle(mustRoots(t, c)); err != nil {
		t.Fatal(err)
	}
	if _, err := check.Chain(reply.Chain); err != nil {
		t.Fatal(err)
	}
	return reply, signer
}

func mustRoots(t *testing.T, c *CA) []byte {
	t.Helper()
	roots, err := c.Roots(t.Context())
	must(t, err)
	return roots
}

func TestEnrollsWithPasswordAndFindsChain(t *testing.T) {
	for _, chained := range []bool{false, true} {
		s := newServer(t)
		s.chained = chained
		sign(t, s, s.open(t, s.settings()))
		if got := s.operations(); !slices.Equal(got, []string{cacerts, enroll, cacerts}) {
			t.Errorf("it asked %q", got)
		}
	}
}

// The reply was lost on its way to the host, which asks again.
func TestRepeatCostsNoCertificate(t *testing.T) {
	s := newServer(t)
	c := s.open(t, s.settings())
	req, _ := testkit.Request(t, web)
	req.Token = password
	first, err := c.CSRSign(t.Context(), req)
	must(t, err)
	whole := bytes.Clone(first.Chain)
	clear(first.Chain) // it is the caller's
	for range 2 {
		again, err := c.CSRSign(t.Context(), req)
		must(t, err)
		if !bytes.Equal(again.Chain, whole) {
			t.Error("a repeat got another certificate")
		}
		clear(again.Chain)
	}
	if got := s.operations(); !slices.Equal(got, []string{cacerts, enroll}) {
		t.Errorf("it asked %q", got)
	}
	other := req
	other.ID += "-2"
	_, err = c.CSRSign(t.Context(), other)
	must(t, err)
	if got := s.operations(); len(got) != 4 {
		t.Errorf("for another request, it asked %q", got)
	}
}

func TestPasswordComesFromFileAndLabelIsInPath(t *testing.T) {
	s := newServer(t)
	s.prefix = "/.well-known/est/devices/"
	settings := s.settings()
	settings.Label, settings.PasswordFile = "devices", setting.File(s.write(t, "password", []byte(password.Reveal()+"\r\n")))
	c := s.open(t, settings)
	sign(t, s, c)
	s.write(t, "password", []byte("\n"))
	req, _ := testkit.Request(t, web)
	_, err := c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrUnavailable, "password_file", "want a password of 1 to")
}

func TestHeldCertificateRenewsByReenroll(t *testing.T) {
	s := newServer(t)
	settings := s.settings()
	reply, key := sign(t, s, s.open(t, settings))
	s.hold(t, &settings, reply.Chain, key)
	c := s.open(t, settings)
	for range 2 {
		s.asked = nil
		reply, key = sign(t, s, c)
		s.hold(t, &settings, reply.Chain, key)
		if got := s.operations(); !slices.Equal(got, []string{cacerts, reenroll, cacerts}) {
			t.Errorf("it asked %q", got)
		}
	}
	s.set(func() { s.asked, s.renews = nil, false })
	sign(t, s, c)
	if got := s.operations(); !slices.Equal(got, []string{cacerts, reenroll, enroll, cacerts}) {
		t.Errorf("after a refusal, it asked %q", got)
	}
}

func TestReenrollIsForSameNamesAndSubjectOnly(t *testing.T) {
	s := newServer(t)
	settings := s.settings()
	req, key := testkit.Request(t, web)
	req.Token = password
	reply, err := s.open(t, settings).CSRSign(t.Context(), req)
	must(t, err)
	s.hold(t, &settings, reply.Chain, key)
	s.asked = nil
	sign(t, s, s.open(t, settings)) // has a DNS name, too
	if got := s.operations(); slices.Contains(got, reenroll) {
		t.Errorf("it asked %q", got)
	}
}

// A server that is away, or asks to wait, is not asked in another way, which would cost a
// second certificate or log in for nothing.
func TestUnreachableServerIsNotAskedInOtherWay(t *testing.T) {
	s := newServer(t)
	settings := s.settings()
	reply, key := sign(t, s, s.open(t, settings))
	s.hold(t, &settings, reply.Chain, key)
	s.set(func() {
		s.asked = nil
		s.pending, s.after = map[string]bool{}, "120"
	})
	c := s.open(t, settings)
	req, _ := testkit.Request(t, web, "web.example.org")
	req.Token = password
	for range 2 {
		_, err := c.CSRSign(t.Context(), req)
		if err == nil {
			break
		}
		testkit.Fails(t, err, password, ca.ErrPending, "has not decided", "approve it there")
		if ca.RetryAfter(err) != 2*time.Minute {
			t.Errorf("come back after %s", ca.RetryAfter(err))
		}
	}
	if got := s.operations(); !slices.Equal(got, []string{cacerts, reenroll, cacerts, reenroll}) {
		t.Errorf("it asked %q", got)
	}
}

func TestPendingWithoutTimeWaitsMinute(t *testing.T) {
	s := newServer(t)
	s.pending = map[string]bool{}
	req, _ := testkit.Request(t, web)
	req.Token = password
	_, err := s.open(t, s.settings()).CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrPending)
	if ca.RetryAfter(err) != time.Minute {
		t.Errorf("come back after %s", ca.RetryAfter(err))
	}
}

func TestErrorsHaveReasonsAndHidePassword(t *testing.T) {
	s := newServer(t)
	c := s.open(t, s.settings())
	req, _ := testkit.Request(t, web)
	_, err := c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrUnauthenticated, "the request has no token")
	req.Token = "another-password-than-that"
	_, err = c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, req.Token, ca.ErrUnauthenticated, "not with the password", "(secret)")
	if ca.ActionFor(err) != ca.RefreshToken {
		t.Errorf("the host's action is %v", ca.ActionFor(err))
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(user + ":" + req.Token.Reveal()))
	for status, want := range map[int]*ca.Error{
		400: ca.ErrInvalid, 401: ca.ErrUnauthenticated, 403: ca.ErrDenied, 404: ca.ErrUnavailable, 429: ca.ErrRateLimited, 500: ca.ErrInternal, 503: ca.ErrUnavailable,
		204: ca.ErrInternal, 301: ca.ErrInvalid,
	} {
		s.set(func() {
			s.replace = func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, cacerts) {
					answer(w, "application/pkcs7-mime", bagOf(s.Bundle().Certificates()))
					return
				}
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Location", "https://elsewhere.example.org/")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "said: "+r.Header.Get("Authorization"))
			}
		})
		_, err = c.CSRSign(t.Context(), req)
		testkit.Fails(t, err, req.Token, want)
		if strings.Contains(err.Error(), encoded) {
			t.Errorf("the error has the credentials: %v", err)
		}
	}
}

// The server is asked once: what comes next is the host's to decide.
func TestWrongUserOrPasswordIsNotRetried(t *testing.T) {
	s := newServer(t)
	wrong := ca.Token("another-password-than-that")
	file := setting.File(s.write(t, "password", []byte(wrong.Reveal())))
	for name, test := range map[string]struct {
		username string
		file     setting.File
		token    ca.Token
		want     *ca.Error
	}{
		"password in a file": {user, file, "", ca.ErrUnauthenticated},
		"password as token":  {user, "", wrong, ca.ErrUnauthenticated},
		"user":               {"nobody", "", wrong, ca.ErrDenied},
		"no user":            {"", "", "", ca.ErrUnauthenticated},
	} {
		s.set(func() { s.asked = nil })
		settings := s.settings()
		settings.Username, settings.PasswordFile = test.username, test.file
		req, _ := testkit.Request(t, web)
		req.Token = test.token
		_, err := s.open(t, settings).CSRSign(t.Context(), req)
		testkit.Fails(t, err, wrong, test.want)
		if got := s.operations(); !slices.Equal(got, []string{cacerts, enroll}) {
			t.Errorf("%s: it asked %q", name, got)
		}
	}
}

// A made-up reply costs no certificate and does no harm.
func TestForeignReplies(t *testing.T) {
	other := catest.NewCA(catest.Options{})
	req, _ := testkit.Request(t, web)
	req.Token = password
	foreign, err := other.CSRSign(t.Context(), func() ca.SignRequest { r, _ := testkit.Request(t, web); return r }())
	must(t, err)
	leaf, err := pki.ParseCertificates(foreign.Chain)
	must(t, err)
	for name, bag := range map[string][]byte{
		"nothing": nil, "no PKCS #7": []byte("hello"), "another's certificate": bagOf(leaf), "a root alone": bagOf(other.Bundle().Certificates()),
		"too long": make([]byte, 3<<20), "no certificates": bagOf(nil),
	} {
		s := newServer(t)
		s.replace = func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, cacerts) {
				answer(w, "application/pkcs7-mime", bagOf(s.Bundle().Certificates()))
				return
			}
			answer(w, "application/pkcs7-mime", bag)
		}
		if _, err := s.open(t, s.settings()).CSRSign(t.Context(), req); !errors.Is(err, ca.ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNothingIsIssuedWhileCACertsAreAway(t *testing.T) {
	s := newServer(t)
	c := s.open(t, s.settings())
	s.replace = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	req, _ := testkit.Request(t, web)
	req.Token = password
	_, err := c.CSRSign(t.Context(), req)
	testkit.Fails(t, err, password, ca.ErrUnavailable)
	if got := s.operations(); !slices.Equal(got, []string{cacerts}) {
		t.Errorf("it asked %q", got)
	}
}

func TestNothingIsIssuedBelowUselessCACerts(t *testing.T) {
	s := newServer(t)
	c := s.open(t, s.settings())
	for says, bag := range map[string][]byte{
		"none can be used: certificate 1 of 1 is malformed": []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"),
		"is a root": pki.EncodeCertificates(s.intermediates()),
	} {
		s.set(func() {
			s.asked = nil
			s.replace = func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(bag) }
		})
		req, _ := testkit.Request(t, web)
		req.Token = password
		_, err := c.CSRSign(t.Context(), req)
		testkit.Fails(t, err, password, ca.ErrInternal, says)
		if got := s.operations(); !slices.Equal(got, []string{cacerts}) {
			t.Errorf("it asked %q", got)
		}
	}
}

func TestRoots(t *testing.T) {
	s := newServer(t)
	settings := s.settings()
	if got, err := pki.ParseBundle(mustRoots(t, s.open(t, settings))); err != nil || !got.Equal(s.Bundle()) {
		t.Errorf("%v, %v", got, err)
	}
	s.set(func() {
		s.replace = func(w http.ResponseWriter, r *http.Request) {
			answer(w, "application/pkcs7-mime", bagOf(s.intermediates()))
		}
	})
	_, err := s.open(t, settings).Roots(t.Context())
	testkit.Fails(t, err, password, ca.ErrInternal, "cacerts of ", "set bundle_file")
	settings.BundleFile = setting.Certificates(s.Bundle().PEM())
	if got, err := pki.ParseBundle(mustRoots(t, s.open(t, settings))); err != nil || !got.Equal(s.Bundle()) {
		t.Errorf("%v, %v", got, err)
	}
	settings.BundleFile = "/nowhere.pem"
	_, err = s.open(t, settings).Roots(t.Context())
	testkit.Fails(t, err, password, ca.ErrUnavailable, "bundle_file")
}

func TestSettingsAreChecked(t *testing.T) {
	s := newServer(t)
	for says, change := range map[string]func(*Settings){
		"label is":                 func(s *Settings) { s.Label = "../admin" },
		"no operation of EST":      func(s *Settings) { s.Label = "cacerts" },
		"without /.well-known/est": func(s *Settings) { s.URL.Path = "/.well-known/est" },
		"it takes no colon":        func(s *Settings) { s.Username = "a:b" },
		"but username is not set":  func(s *Settings) { s.Username, s.PasswordFile = "", "p" },
		"set both or neither":      func(s *Settings) { s.HeldKeyFile = "k" },
		"client_key_file":          func(s *Settings) { s.ClientCertFile = "c" },
		"it takes https://host":    func(s *Settings) { s.URL.Scheme = "http" },
	} {
		settings := s.settings()
		change(&settings)
		_, err := Open(settings)
		testkit.Fails(t, err, password, ca.ErrInvalid, says)
	}
}
