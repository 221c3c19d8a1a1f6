package awspca

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

func TestWatcherSendsRootNowAndAfterItsChange(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		w := testkit.WatchRoots(t, c)
		w.Gets(t, time.Second, s.roots())
		w.Silent(t, time.Hour)
		if n := s.count("GetCertificateAuthorityCertificate"); n < 10 || n > 15 {
			t.Errorf("%d calls in an hour", n)
		}
		s.set(func() { s.by = newAuthority(pki.ECDSAP256) })
		w.Gets(t, 6*time.Minute, s.roots())
		s.set(func() { s.by = newAuthority(pki.ECDSAP256) })
		synctest.Wait()
		mustSign(t, c) // under an unknown root
		w.Gets(t, time.Second, s.roots())
		s.next("GetCertificateAuthorityCertificate", refuse(http.StatusBadRequest, "InvalidStateException", "is PENDING_CERTIFICATE"))
		if err := w.Ended(); !errors.Is(err, ca.ErrUnavailable) {
			t.Errorf("the watch ended with %v", err)
		}
	})
}

func TestSigningOutlivesAWatchThatCannotAsk(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		mustSign(t, c)
		time.Sleep(time.Hour)
		s.next("GetCertificateAuthorityCertificate", saying(http.StatusBadGateway, ""))
		mustSign(t, c)
		s = newService(pki.ECDSAP256)
		s.next("GetCertificateAuthorityCertificate", refuse(http.StatusBadRequest, "AccessDeniedException", "may not"))
		mustFail(t, s.opened(t, theSettings()), ca.ErrDenied, "may not")
	})
}

func TestRootsAreOnlyTheRoot(t *testing.T) {
	s := newService(pki.ECDSAP256)
	c := s.opened(t, theSettings())
	roots, err := c.Roots(t.Context())
	if err != nil || string(roots) != string(s.roots()) {
		t.Errorf("%s, %v", roots, err)
	}
	for says, body := range map[string]map[string]string{
		"the CA's own certificate": {"Certificate": "x"},
		"is a root":                {"Certificate": pemOf(s.by.own)},
		"the CA's chain":           {"Certificate": pemOf(s.by.own), "CertificateChain": "x"},
	} {
		s.next("GetCertificateAuthorityCertificate", saying(200, string(jsonOf(t, body))))
		_, err := c.Roots(t.Context())
		mustBe(t, err, ca.ErrInternal, says)
	}
	s.next("GetCertificateAuthorityCertificate", saying(200, string(jsonOf(t, map[string]string{"Certificate": pemOf(s.by.root)}))))
	if roots, err = c.Roots(t.Context()); err != nil || string(roots) != string(s.roots()) {
		t.Errorf("of a root: %s, %v", roots, err)
	}
}

func TestWatchWaitsForTheTokenOfARequest(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		log := &testkit.Log{}
		settings := byToken()
		settings.Log = log.Logger()
		c := s.opened(t, settings)
		w := testkit.WatchRoots(t, c)
		time.Sleep(time.Hour)
		_, err := c.Roots(t.Context())
		mustBe(t, err, ca.ErrUnavailable, "there was none yet")
		if s.count("GetCertificateAuthorityCertificate") > 0 {
			t.Error("it asked without credentials")
		}
		got, err := c.ExchangeToken(t.Context(), ca.TokenRequest{SubjectToken: theJWT})
		must(t, err)
		req, key := ask(t)
		req.Token = got.AccessToken
		mustSignThis(t, c, req, key)
		w.Gets(t, time.Second, s.roots())
		s.next("GetCertificateAuthorityCertificate", refuse(http.StatusBadRequest, "ExpiredTokenException", "expired"))
		time.Sleep(time.Hour)
		asked := s.count("GetCertificateAuthorityCertificate")
		time.Sleep(time.Hour)
		if s.count("GetCertificateAuthorityCertificate") != asked {
			t.Error("it goes on with an expired token")
		}
		s.set(func() { s.by = newAuthority(pki.ECDSAP256) })
		req, key = ask(t)
		req.Token = got.AccessToken
		mustSignThis(t, c, req, key)
		w.Gets(t, time.Second, s.roots())
		mustHide(t, log.Take())
	})
}
