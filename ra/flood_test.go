package ra_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// slow is an authority of seven calls a second.
func slow(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 7, Burst: 7} }

// in asks in a goroutine for one of a pod of that number.
func (h *house) in(ctx context.Context, namespace string, n int) <-chan error {
	req := request()
	req.Subject.Namespace, req.Subject.PodUID = namespace, fmt.Sprint(namespace, n)
	done := make(chan error, 1)
	go func() { _, err := ra.Certify(ctx, h, req); done <- err }()
	return done
}

func TestTenThousandRequestsDelayNoOtherNamespace(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inBubble(t, slow, func(h *house) {
		ctx, cancel := context.WithCancel(h.t.Context())
		var flood []<-chan error
		for n := range 10000 {
			flood = append(flood, h.in(ctx, "flood", n))
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if oldest := h.Status()[0].Oldest; oldest != 10*time.Second {
			t.Errorf("the first has waited for %s", oldest)
		}
		begin := time.Now()
		if err := <-h.in(ctx, "quiet", 0); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the other namespace waited for %s", took)
		}
		cancel() // and all that is gone is dropped
		for _, done := range flood {
			<-done
		}
		synctest.Wait()
		asked := len(h.ca.Requests())
		time.Sleep(time.Minute)
		if n := len(h.ca.Requests()); n != asked || h.Status()[0].Waiting != 0 || h.Status()[0].Oldest != 0 {
			t.Errorf("%d calls without a caller, %d wait", n-asked, h.Status()[0].Waiting)
		}
		if asked > 100 {
			t.Errorf("%d calls in ten seconds", asked)
		}
	})
}

func TestFullQueueIsRateLimitedNeverDenied(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 1, Burst: 1, Queue: 10} }, func(h *house) {
		ctx, cancel := context.WithCancel(h.t.Context())
		defer cancel()
		for n := range 11 {
			h.in(ctx, "flood", n)
			synctest.Wait()
		}
		err := <-h.in(ctx, "flood", 99)
		if !errors.Is(err, ca.ErrRateLimited) || ca.RetryAfter(err) < 9*time.Second {
			t.Errorf("got %v, after %s", err, ca.RetryAfter(err))
		}
		quiet := h.in(ctx, "quiet", 0)
		time.Sleep(3 * time.Second)
		if err := <-quiet; err != nil {
			t.Errorf("another namespace: %v", err)
		}
	})
}

// Only a caller that waits for our own rate learns of a quota. It is not refused, and keeps its place.
func TestWhoHasNoTimeToWaitForTheRateIsRateLimited(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 0.01, Burst: 1, InFlight: 4} }, func(h *house) {
		h.must(request())
		short, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
		defer cancel()
		if err := <-h.in(short, "shop", 2); !errors.Is(err, ca.ErrRateLimited) || !errors.Is(err, context.DeadlineExceeded) || ca.RetryAfter(err) != time.Minute {
			t.Errorf("got %v, after %s", err, ca.RetryAfter(err))
		}
		if n := len(h.paper.Lines(t, "refused")); n != 0 || !slices.Equal(h.results(), []string{"issued", "rate limited"}) {
			t.Errorf("%d refusals, and the metrics have %q", n, h.results())
		}
		gone, leave := context.WithCancel(h.t.Context())
		left := h.in(gone, "shop", 3)
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, ca.ErrCanceled) {
			t.Errorf("who goes away: %v", err)
		}
	})
}

func TestWhoHasNoTimeToWaitForAFaultIsNotRateLimited(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 0.1, Burst: 5, InFlight: 4} }, func(h *house) {
		h.ca.Set(func() { h.ca.Before = func(context.Context, ca.SignRequest) error { return ca.ErrUnavailable } })
		for n := range 4 { // the last is the trial of a namespace that had not failed
			<-h.in(h.t.Context(), fmt.Sprint("ns-", n), n)
			time.Sleep(time.Millisecond)
		}
		short, cancel := context.WithTimeout(h.t.Context(), time.Second/2)
		defer cancel()
		if err := <-h.in(short, "shop", 9); !errors.Is(err, ca.ErrDeadline) {
			t.Errorf("while the authority is taken to be down: %v", err)
		}
	})
}

func TestHolderHasABudgetWhateverHisKey(t *testing.T) {
	inBubble(t, func(c *ra.Config) {
		c.Budget = ra.Budget{Holder: 3, HolderEvery: time.Minute, Namespace: 5, NamespaceEvery: time.Hour}
	}, func(h *house) {
		req := request()
		for n := range 3 {
			req.CSR = empty(n)
			h.must(req)
		}
		req.CSR = empty(3)
		if err := h.refused(req, ca.ErrRateLimited); ca.RetryAfter(err) > time.Minute+time.Second || ca.RetryAfter(err) < 30*time.Second {
			t.Errorf("got %v, after %s", err, ca.RetryAfter(err))
		}
		time.Sleep(time.Minute)
		h.must(req)
		req.Subject.PodUID = "2"
		h.must(req)
		req.Subject.PodUID = "3"
		h.refused(req, ca.ErrRateLimited) // the namespace's
		req.Subject.Namespace = "other"
		h.must(req)
	})
}

// What fails costs no certificate and takes none from the budget.
func TestFailuresSpendNoBudget(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Budget = ra.Budget{Holder: 1, HolderEvery: 1000 * time.Hour} }, func(h *house) {
		h.ca.Before = func(context.Context, ca.SignRequest) error { return ca.ErrUnavailable }
		for range 5 {
			h.refused(request(), ca.ErrUnavailable)
			time.Sleep(15 * time.Minute)
		}
		h.ca.Set(func() { h.ca.Before = nil })
		h.must(request())
		req := request()
		req.CSR = empty(1)
		h.refused(req, ca.ErrRateLimited)
	})
}

// A reply that was discarded cost a certificate, whatever the call after it brings.
func TestDiscardedReplySpendsBudgetThoughTheNextCallFails(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Budget = ra.Budget{Holder: 1, HolderEvery: 1000 * time.Hour} }, func(h *house) {
		h.ca.Backdate = 2*time.Minute + 29*time.Second
		h.ca.Before = func(context.Context, ca.SignRequest) error {
			if h.ca.Issued() > 0 {
				return ca.ErrUnavailable
			}
			return nil
		}
		h.refused(request(), ca.ErrUnavailable)
		if n := len(h.paper.Lines(h.t, "discarded")); n != 1 {
			h.t.Errorf("%d certificates are discarded", n)
		}
		h.ca.Set(func() { h.ca.Before = nil })
		time.Sleep(15 * time.Minute)
		h.refused(request(), ca.ErrRateLimited)
	})
}

// A CA that recognizes a repeat answers with the certificate that its first request has paid for.
func TestStaleRepeatSpendsNoBudgetThoughTheNextCallFails(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Budget = ra.Budget{Holder: 2, HolderEvery: 1000 * time.Hour} }, func(h *house) {
		h.ca.Known, h.ca.Backdate = map[string]ca.Certificate{}, 2*time.Minute
		if _, err := h.pod(); err != nil { // the backdating is known from now on
			t.Fatal(err)
		}
		req := request()
		req.Object, req.Asked = "uid", time.Now()
		req.Subject.ServiceAccount, req.Subject.PodUID = "db", "db"
		first := h.must(req)
		time.Sleep(4 * time.Minute)
		h.ca.Set(func() {
			h.ca.Before = func(_ context.Context, again ca.SignRequest) error {
				if again.ID == first.RequestID {
					return nil // from its memory
				}
				return ca.ErrUnavailable
			}
		})
		h.refused(req, ca.ErrUnavailable)
		h.ca.Set(func() { h.ca.Before = nil })
		time.Sleep(time.Minute)
		req.Object = "another"
		h.must(req)
	})
}

// A token source that runs a command runs it as often as the authority is asked.
func TestFailingTokenIsReadSeldom(t *testing.T) {
	var reads atomic.Int32
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) {
			reads.Add(1)
			return ca.Bearer{}, errors.New("no such file")
		}
		c.Authorities[0].Limits = ra.Limits{Rate: 7, Burst: 7, InFlight: 2}
	}, func(h *house) {
		for n := range 1000 {
			h.in(h.t.Context(), fmt.Sprint("ns-", n%10), n)
		}
		time.Sleep(time.Minute)
		if n := reads.Load(); n > 30 || n == 0 {
			t.Errorf("%d reads in a minute", n)
		}
		h.Close()
	})
}

func TestEqualRequestsMakeOneCall(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Before = func(context.Context, ca.SignRequest) error { time.Sleep(10 * time.Second); return nil }
		var all []<-chan error
		for range 8 {
			all = append(all, h.in(h.t.Context(), "shop", 1))
		}
		synctest.Wait()
		if err := <-h.in(h.t.Context(), "shop", 1); !errors.Is(err, ca.ErrRateLimited) {
			t.Errorf("the ninth who waits for the same holder: %v", err)
		}
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(h.ca.Requests()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

// All who wait for one call are refused with it, and the audit log counts each.
func TestRefusalOfOneCallIsCountedForEachCaller(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Before = func(context.Context, ca.SignRequest) error { time.Sleep(10 * time.Second); return ca.ErrDenied }
		var all []<-chan error
		for range 5 {
			all = append(all, h.in(h.t.Context(), "shop", 1))
		}
		for _, done := range all {
			if err := <-done; !errors.Is(err, ca.ErrDenied) {
				h.t.Error(err)
			}
		}
		h.Close()
		if n := h.paper.Refusals(h.t); n != len(all) || len(h.ca.Requests()) != 1 {
			h.t.Errorf("%d refusals are recorded of %d, after %d calls", n, len(all), len(h.ca.Requests()))
		}
	})
}

// A CSR that is signed again is another text for the same key.
func TestSameKeyMakesOneCall(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Before = func(context.Context, ca.SignRequest) error { time.Sleep(10 * time.Second); return nil }
		done := h.in(h.t.Context(), "shop", 1)
		synctest.Wait()
		req := request()
		req.Subject.PodUID, req.CSR = "shop1", csr(0, &x509.CertificateRequest{})
		h.must(req)
		if err := <-done; err != nil || len(h.ca.Requests()) != 1 {
			t.Errorf("%v after %d calls", err, len(h.ca.Requests()))
		}
	})
}

func TestCertificateWaitsForCallerWhoComesBack(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Before = func(context.Context, ca.SignRequest) error { time.Sleep(10 * time.Second); return nil }
		ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Second)
		defer cancel()
		if err := <-h.in(ctx, "shop", 1); !errors.Is(err, context.DeadlineExceeded) || ca.RetryAfter(err) == 0 {
			t.Errorf("got %v, after %s", err, ca.RetryAfter(err))
		}
		time.Sleep(30 * time.Second)
		if err := <-h.in(h.t.Context(), "shop", 1); err != nil || len(h.ca.Requests()) != 1 {
			t.Errorf("%v after %d calls", err, len(h.ca.Requests()))
		}
		time.Sleep(3 * time.Minute)
		if err := <-h.in(h.t.Context(), "shop", 1); err != nil || len(h.ca.Requests()) != 2 {
			t.Errorf("a collected certificate is given out again: %v after %d calls", err, len(h.ca.Requests()))
		}
	})
}

func TestFirstAskKeepsItsPlace(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 1, Burst: 1} }, func(h *house) {
		<-h.in(h.t.Context(), "shop", 0)
		impatient, cancel := context.WithTimeout(h.t.Context(), 100*time.Millisecond)
		defer cancel()
		<-h.in(impatient, "shop", 1)
		ctx, stop := context.WithCancel(h.t.Context())
		defer stop()
		for n := range 20 {
			h.in(ctx, "shop", 100+n)
		}
		synctest.Wait()
		begin := time.Now()
		if err := <-h.in(h.t.Context(), "shop", 1); err != nil || time.Since(begin) > 1500*time.Millisecond {
			t.Errorf("%v after %s; who asked first has waited longest", err, time.Since(begin))
		}
	})
}

// A flood of new holders, each with a turn of its own namespace, leaves a fifth to those who
// renew.
func TestRenewalsHaveTurnsOfTheirOwn(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 5, Burst: 5, Reserve: 5} }, func(h *house) {
		ctx, cancel := context.WithCancel(h.t.Context())
		defer cancel()
		for n := range 20 {
			if err := <-h.in(ctx, "old", n); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 1000 {
			h.in(ctx, fmt.Sprint("new-", n), n)
		}
		synctest.Wait()
		begin := time.Now()
		var renewals []<-chan error
		for n := range 20 {
			renewals = append(renewals, h.in(ctx, "old", n))
		}
		for _, done := range renewals {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took > 25*time.Second {
			t.Errorf("20 renewals took %s; a fifth of five calls a second is one", took)
		}
	})
}
