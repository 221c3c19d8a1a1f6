package ra_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestAuthorityDoorCannotTakeIsStopped(t *testing.T) {
	for name, spoil := range map[string]func(*ratest.CA){
		"backdated by an hour": func(o *ratest.CA) { o.Backdate = time.Hour },
		"always for a year": func(o *ratest.CA) {
			o.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
				leaf.NotAfter = leaf.NotAfter.AddDate(1, 0, 0)
			}
		},
		"always for minutes": func(o *ratest.CA) {
			o.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
				leaf.NotAfter = leaf.NotBefore.Add(10 * time.Minute)
			}
		},
		"for no use": func(o *ratest.CA) {
			o.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
				leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(h *house) {
				h.ca.Set(func() { spoil(h.ca) })
				begin := time.Now()
				for n := 0; time.Since(begin) < time.Hour; n++ { // a pod each five seconds
					err := <-h.in(h.t.Context(), fmt.Sprint("ns-", n%50), n)
					if !errors.Is(err, ca.ErrUnavailable) || ca.RetryAfter(err) == 0 {
						t.Fatalf("got %v, after %s", err, ca.RetryAfter(err))
					}
					time.Sleep(5 * time.Second)
				}
				if n := h.ca.Issued(); n > 40 {
					t.Errorf("720 pods in an hour cost %d certificates", n)
				}
				if s := h.Status()[0].Stopped; len(s) != 1 || s[0].Rule != "mesh" {
					t.Errorf("the status shows %+v", s)
				}
				h.ca.Set(func() { h.ca.Backdate, h.ca.Change = 0, nil })
				time.Sleep(11 * time.Minute)
				if err := <-h.in(h.t.Context(), "late", 1); err != nil {
					t.Errorf("the probe: %v", err)
				}
				if err := <-h.in(h.t.Context(), "late", 2); err != nil || len(h.Status()[0].Stopped) > 0 {
					t.Errorf("after the probe: %v", err)
				}
			})
		})
	}
}

// Names that tenants chose and the authority changes stop no other caller, however many namespaces one
// owner has. The budgets of those who chose them bound what that costs.
func TestNamesThatTenantsChooseStopNoOtherTenant(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
			if !strings.Contains(leaf.URIs[0].Path, "/ns/shop/") {
				leaf.DNSNames = []string{"ca.example.org"}
			}
		}
		begin := time.Now()
		for n := 0; time.Since(begin) < 2*time.Hour; n++ { // ten pods in ten namespaces, which never give up
			err := <-h.in(h.t.Context(), fmt.Sprint("mallory-", n%10), n%10)
			if reason := ca.ReasonFor(err); reason != ca.Unavailable && reason != ca.RateLimited || ca.RetryAfter(err) == 0 {
				t.Fatalf("got %v, after %s", err, ca.RetryAfter(err))
			}
			time.Sleep(5 * time.Second)
		}
		if s := h.Status()[0].Stopped; len(s) != 0 {
			t.Errorf("the status shows %+v", s)
		}
		if n := h.ca.Issued(); n > 10*30 {
			t.Errorf("ten pods in two hours cost %d certificates", n)
		}
		if err := <-h.in(h.t.Context(), "shop", 1); err != nil {
			t.Errorf("another tenant: %v", err)
		}
	})
}

// A request for the very least that the door takes must not stop those for more.
func TestShortestLifetimeStopsNoOtherRequest(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
			leaf.NotAfter = leaf.NotAfter.Add(-time.Second)
		}
		short := request()
		short.TTL = time.Hour
		h.refused(short, ca.ErrUnavailable)
		long := request()
		long.Subject.PodUID = "2"
		h.must(long)
	})
}

// A pod that asks for less than the authority makes is stopped, and those that ask for more
// are not.
func TestStopForShortLifetimesIsForThemAlone(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) {
			leaf.NotAfter = leaf.NotBefore.Add(12 * time.Hour)
		}
		short := request()
		short.TTL = time.Hour
		h.refused(short, ca.ErrUnavailable)
		short.Subject.PodUID = "2"
		h.refused(short, ca.ErrUnavailable)
		if n := h.ca.Issued(); n != 1 {
			t.Errorf("%d certificates for requests that cannot be served", n)
		}
		long := request()
		long.Subject.PodUID = "3"
		h.must(long)
		if s := h.Status()[0].Stopped; len(s) != 1 || s[0].UpTo != time.Hour {
			t.Errorf("the status shows %+v", s)
		}
	})
}

func TestHangingClientCostsItsSlotsAndNoMore(t *testing.T) {
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].Limits = ra.Limits{Rate: 100, Burst: 100, InFlight: 4}
		c.Authorities[0].Timeout = 5 * time.Second
	}, func(h *house) {
		release := make(chan struct{})
		h.ca.Before = func(_ context.Context, req ca.SignRequest) error {
			if req.SubjectID == "spiffe://example.org/ns/evil/sa/web" {
				<-release // it ignores its context
			}
			return nil
		}
		begin := time.Now()
		if err := <-h.in(h.t.Context(), "evil", 0); !errors.Is(err, ca.ErrDeadline) || time.Since(begin) > 7*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
		for n := range 10 {
			h.in(h.t.Context(), "evil", n)
		}
		time.Sleep(time.Second)
		if err := <-h.in(h.t.Context(), "good", 0); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := len(h.ca.Requests()) - 1; n != 2 {
			t.Errorf("%d calls hang, a namespace has two of four", n)
		}
		soon, cancel := context.WithTimeout(h.t.Context(), time.Minute)
		defer cancel()
		if err := <-h.in(soon, "good", 2); err != nil {
			t.Errorf("beside those that hang: %v", err)
		}
		close(release)
		time.Sleep(2 * time.Minute)
		later, cancel := context.WithTimeout(h.t.Context(), 10*time.Minute)
		defer cancel()
		for _, namespace := range []string{"good", "evil"} {
			if err := <-h.in(later, namespace, 20); err != nil {
				t.Errorf("%s after the client returned: %v", namespace, err)
			}
		}
	})
}

func TestClosingEndsAllWaits(t *testing.T) {
	inBubble(t, slow, func(h *house) {
		h.ca.Before = func(ctx context.Context, _ ca.SignRequest) error { <-ctx.Done(); return ctx.Err() }
		var all []<-chan error
		for n := range 50 {
			all = append(all, h.in(h.t.Context(), "shop", n))
		}
		synctest.Wait()
		h.Close()
		h.Close()
		for _, done := range all {
			if err := <-done; !errors.Is(err, ca.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		h.refused(request(), ca.ErrUnavailable)
	})
}
