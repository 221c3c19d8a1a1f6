package awspca

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// virtual runs a test in virtual time, with a service in memory.
func virtual(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newService(pki.ECDSAP256)) })
}

func issueOf(t *testing.T, s *service) (in issueCall) {
	t.Helper()
	must(t, json.Unmarshal(s.last(t, "IssueCertificate").body, &in))
	return in
}

func TestCertificateCostsTwoCallsAndItsPolls(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		mustSign(t, c)
		if issue, get, own := s.count("IssueCertificate"), s.count("GetCertificate"), s.count("GetCertificateAuthorityCertificate"); issue != 1 || get != 1 || own != 1 {
			t.Errorf("the first took %d, %d and %d calls", issue, get, own)
		}
		s.set(func() { s.delay = 3 })
		mustSign(t, c)
		if issue, get, own := s.count("IssueCertificate"), s.count("GetCertificate"), s.count("GetCertificateAuthorityCertificate"); issue != 2 || get != 1+4 || own != 1 {
			t.Errorf("with 3 polls it took %d, %d and %d calls in all", issue, get, own)
		}
	})
}

func TestTimesAreThoseOfTheRequest(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		now := time.Now()
		leaf := mustSign(t, c).Leaf
		if early, life := now.Sub(leaf.NotBefore), leaf.NotAfter.Sub(now); early < time.Minute || early > 4*time.Minute || life < time.Hour || life > time.Hour+2*time.Second {
			t.Errorf("it begins %s before, and ends %s after", early, life)
		}
		req, key := ask(t)
		req.TTL = 0
		reply, err := c.CSRSign(t.Context(), req)
		must(t, err)
		req.TTL = defaultTTL + time.Minute
		leaf = testkit.Passes(t, reply, testkit.Check(t, req, key)).Leaf
		if life := time.Until(leaf.NotAfter); life < 23*time.Hour {
			t.Errorf("without a TTL it lives for %s", life)
		}
		req, key = ask(t)
		req.TTL = 365 * 24 * time.Hour
		if leaf = mustSignThis(t, c, req, key).Leaf; !leaf.NotAfter.Equal(s.by.own.NotAfter) {
			t.Errorf("it ends %s, its CA %s", leaf.NotAfter, s.by.own.NotAfter)
		}
	})
}

func TestAlgorithmFitsTheKeyOfTheCA(t *testing.T) {
	if testing.Short() {
		t.Skip("generates RSA keys")
	}
	for kind, want := range map[pki.KeyType]string{
		pki.ECDSAP256: "SHA256WITHECDSA", pki.ECDSAP384: "SHA384WITHECDSA", pki.RSA2048: "SHA256WITHRSA",
		pki.MLDSA44: "ML_DSA_44", pki.MLDSA65: "ML_DSA_65", pki.MLDSA87: "ML_DSA_87",
	} {
		if _, err := pki.ParseKeyType(string(kind)); err != nil {
			continue // built without it
		}
		s := newService(kind)
		mustSign(t, s.opened(t, theSettings()))
		if got := issueOf(t, s).SigningAlgorithm; got != want {
			t.Errorf("%v: %s", kind, got)
		}
	}
	s := newService(pki.RSA2048)
	settings := theSettings()
	settings.SigningAlgorithm = "ML_DSA_44"
	must(t, settings.Validate())
	settings.SigningAlgorithm = "SHA512WITHRSA"
	mustSign(t, s.opened(t, settings))
	if got := issueOf(t, s).SigningAlgorithm; got != settings.SigningAlgorithm {
		t.Errorf("set: %s", got)
	}
}

func TestRetryGoesOnWithTheOrder(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		req, key := ask(t)
		s.set(func() { s.delay = 1000 })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := c.CSRSign(ctx, req)
		cancel()
		mustBe(t, err, ca.ErrDeadline, "a retry goes on with the order")
		if polls := s.count("GetCertificate"); polls < 6 || polls > 15 {
			t.Errorf("%d polls in 20 s", polls)
		}
		time.Sleep(20 * time.Minute) // longer than the service remembers the token
		s.set(func() { s.only(t).polls = 0 })
		reply, err := c.CSRSign(t.Context(), req)
		must(t, err)
		again, err := c.CSRSign(t.Context(), req)
		must(t, err)
		testkit.Passes(t, reply, testkit.Check(t, req, key))
		if string(reply.Chain) != string(again.Chain) || s.certificates() != 1 || s.count("IssueCertificate") != 1 {
			t.Errorf("%d certificates by %d orders", s.certificates(), s.count("IssueCertificate"))
		}
	})
}

// only returns the one certificate that was issued. The caller holds the lock.
func (s *service) only(t *testing.T) *issued {
	t.Helper()
	if len(s.issued) != 1 {
		t.Fatalf("%d certificates", len(s.issued))
	}
	for _, one := range s.issued {
		return one
	}
	return nil
}

// The answer to the first order is lost: the token makes one certificate of both orders.
func TestLostAnswerMakesNoSecondCertificate(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		s.next("IssueCertificate", func(w http.ResponseWriter, r *http.Request) {
			body := s.last(t, "IssueCertificate").body
			s.mu.Lock()
			_, wrong := s.issueCertificate(body)
			s.mu.Unlock()
			if wrong != nil {
				t.Error(wrong)
			}
			saying(http.StatusBadGateway, "")(w, r)
		})
		req, key := ask(t)
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, ca.ErrUnavailable, "it answered with 502")
		first := issueOf(t, s)
		time.Sleep(time.Minute)
		mustSignThis(t, c, req, key)
		second := issueOf(t, s)
		if s.certificates() != 1 || first.IdempotencyToken != second.IdempotencyToken || len(second.IdempotencyToken) != 36 || *first.Validity != *second.Validity {
			t.Errorf("%d certificates, tokens %q and %q", s.certificates(), first.IdempotencyToken, second.IdempotencyToken)
		}
		time.Sleep(10 * time.Minute) // the first try's times would be too old
		other, _ := ask(t)
		s.next("IssueCertificate", saying(http.StatusBadGateway, ""))
		_, err = c.CSRSign(t.Context(), other)
		mustBe(t, err, ca.ErrUnavailable)
		time.Sleep(10 * time.Minute)
		_, err = c.CSRSign(t.Context(), other)
		must(t, err)
		if early := time.Since(time.Unix(issueOf(t, s).ValidityNotBefore.Value, 0)); early > 4*time.Minute {
			t.Errorf("backdated by %s", early)
		}
	})
}

func TestFailedOrderIsForgotten(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		s.next("GetCertificate", refuse(http.StatusBadRequest, "RequestFailedException", "is in a failed state"))
		req, _ := ask(t)
		_, err := c.CSRSign(t.Context(), req)
		mustBe(t, err, ca.ErrInvalid, "RequestFailedException: is in a failed state")
		if len(c.orders.all) != 0 {
			t.Error("the order is remembered")
		}
		mustSign(t, c)
	})
}

func TestForgottenOrdersAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	o, now := newOrders(), time.Now()
	for i := range 2 * maxOrders {
		key := keyOf(ca.SignRequest{ID: "1", CSR: []byte{byte(i), byte(i >> 8)}})
		o.placed(key, order{begun: o.of(key, now).begun, arn: "a"})
	}
	if n := len(o.all); n > maxOrders {
		t.Errorf("%d orders", n)
	}
	o.of(keyOf(ca.SignRequest{ID: "2"}), now.Add(2*orderLife))
	if n := len(o.all); n > 1 {
		t.Errorf("%d orders after their life", n)
	}
}

func TestTokenHasAtMost36Characters(t *testing.T) {
	req, _ := ask(t)
	long := idempotencyToken(req.ID + "/1")
	if idempotencyToken(req.ID) != req.ID || len(long) != 36 || long == idempotencyToken(req.ID+"/2") {
		t.Errorf("%q", long)
	}
}

func TestCallerThatGoesAwayEndsTheWait(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		s.set(func() { s.delay = 1000 })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		req, _ := ask(t)
		began := time.Now()
		if _, err := c.CSRSign(ctx, req); !errors.Is(err, context.Canceled) || ca.ActionFor(err) != ca.Drop || time.Since(began) > 6*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// Beside the wait, the SDK makes one attempt: the agent decides when to try again.
func TestFaultsAreNotRetriedHere(t *testing.T) {
	virtual(t, func(t *testing.T, s *service) {
		c := s.opened(t, theSettings())
		mustSign(t, c)
		for name, answer := range map[string]http.HandlerFunc{
			"IssueCertificate": refuse(http.StatusBadRequest, "ThrottlingException", "Rate exceeded"), "GetCertificate": saying(http.StatusServiceUnavailable, ""),
		} {
			before := s.count(name)
			s.next(name, answer)
			req, _ := ask(t)
			if _, err := c.CSRSign(t.Context(), req); ca.ActionFor(err) != ca.Wait || s.count(name) != before+1 {
				t.Errorf("%s: %v after %d calls", name, err, s.count(name)-before)
			}
		}
	})
}

func TestForeignARNIsRefused(t *testing.T) {
	s := newService(pki.ECDSAP256)
	c := s.opened(t, theSettings())
	for _, arn := range []string{"", "arn:aws:acm-pca:eu-central-1:123456789012:certificate-authority/x/certificate/1", theARN + "/certificate/" + string(make([]byte, 600))} {
		text, _ := json.Marshal(map[string]string{"CertificateArn": arn})
		s.next("IssueCertificate", saying(http.StatusOK, string(text)))
		mustFail(t, c, ca.ErrInternal, "no ARN of a certificate of this CA")
	}
}
