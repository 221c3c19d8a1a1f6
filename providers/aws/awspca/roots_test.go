package awspca

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// watching is a RootWatcher's end.
type watching struct {
	told  chan string
	ended chan error
	stop  context.CancelFunc
}

func watch(t *testing.T, c *CA) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{told: make(chan string, 100), ended: make(chan error, 1), stop: cancel}
	go func() {
		w.ended <- c.WatchRoots(ctx, func(roots []byte) error { w.told <- string(roots); return nil })
	}()
	t.Cleanup(cancel)
	return w
}

// must waits within the limit for the roots.
func (w *watching) must(t *testing.T, limit time.Duration, want []byte) {
	t.Helper()
	select {
	case got := <-w.told:
		if got != string(want) {
			t.Fatalf("notified %s", got)
		}
	case err := <-w.ended:
		t.Fatalf("the watch ended: %v", err)
	case <-time.After(limit):
		t.Fatalf("no roots arrived in %s", limit)
	}
}

func TestWatcherSendsRootNowAndAfterItsChange(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		w := watch(t, c)
		w.must(t, time.Second, s.roots())
		time.Sleep(time.Hour)
		if n := s.count("GetCertificateAuthorityCertificate"); n < 10 || n > 15 || len(w.told) > 0 {
			t.Errorf("%d calls in an hour, roots sent %d times", n, len(w.told))
		}
		s.set(func() { s.by = newAuthority(pki.ECDSAP256) })
		w.must(t, 6*time.Minute, s.roots())
		s.set(func() { s.by = newAuthority(pki.ECDSAP256) })
		synctest.Wait()
		mustSign(t, c) // under an unknown root
		w.must(t, time.Second, s.roots())
		s.next("GetCertificateAuthorityCertificate", refuse(http.StatusBadRequest, "InvalidStateException", "is PENDING_CERTIFICATE"))
		if err := <-w.ended; !errors.Is(err, ca.ErrUnavailable) {
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
		w := watch(t, c)
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
		w.must(t, time.Second, s.roots())
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
		w.must(t, time.Second, s.roots())
		mustHide(t, log.Take())
	})
}
