package ra_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// ahead is how far the clock of the authority is ahead in these tests.
const ahead = 4 * time.Minute

// inFuture has an authority whose certificates begin later.
func inFuture(t *testing.T, test func(h *house)) {
	inBubble(t, nil, func(h *house) {
		h.ca.Backdate = -ahead
		test(h)
	})
}

// within issues for a caller that waits for that long at most.
func (h *house) within(wait time.Duration, req ra.Request) (ra.Certificate, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), wait)
	defer cancel()
	return ra.Certify(ctx, h, req)
}

// early demands that a request is put off until the certificate begins.
func (h *house) early(req ra.Request, left time.Duration) {
	h.t.Helper()
	if err := h.refused(req, ca.ErrUnavailable); ca.RetryAfter(err) != left {
		h.t.Errorf("retry after %s, want %s: %v", ca.RetryAfter(err), left, err)
	}
}

func TestCertificateIsNotGivenOutBeforeItBegins(t *testing.T) {
	for _, door := range []string{kubelet, istio} {
		inFuture(t, func(h *house) {
			req := request()
			req.Door = door
			h.early(req, ahead)
			time.Sleep(time.Minute)
			h.early(req, ahead-time.Minute)
			time.Sleep(ahead - time.Minute + 50*time.Second)
			if cert := h.must(req); cert.NotBefore.After(time.Now()) || h.ca.Issued() != 1 {
				t.Errorf("it begins at %s, it is %s; %d signed", cert.NotBefore, time.Now(), h.ca.Issued())
			}
			if n := len(h.paper.Lines(t, "issued")); n != 1 {
				t.Errorf("%d lines of issued certificates", n)
			}
		})
	}
}

// A caller that may wait that long gets it as soon as it begins, and so do all others with its key.
func TestCallerWithTimeWaitsForTheBegin(t *testing.T) {
	inFuture(t, func(h *house) {
		begun := time.Now()
		results := make(chan error, 3)
		for range 3 {
			go func() { _, err := h.within(5*time.Minute, request()); results <- err }()
		}
		for range 3 {
			if err := <-results; err != nil || time.Since(begun) != ahead {
				t.Errorf("after %s: %v", time.Since(begun), err)
			}
		}
		if h.ca.Issued() != 1 {
			t.Errorf("%d certificates", h.ca.Issued())
		}
	})
}

func TestCallerWithLessTimeIsNotHeld(t *testing.T) {
	inFuture(t, func(h *house) {
		begun := time.Now()
		if _, err := h.within(time.Minute, request()); !errors.Is(err, ca.ErrUnavailable) || time.Since(begun) > time.Second {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
	})
}

// A client that makes a key for each attempt must not burn a certificate with each.
func TestNewKeyCostsNoCertificateBeforeTheFirstBegins(t *testing.T) {
	inFuture(t, func(h *house) {
		h.early(request(), ahead)
		other := request()
		for n := range 4 {
			other.CSR = empty(n + 1)
			h.early(other, ahead-time.Duration(n)*50*time.Second)
			time.Sleep(50 * time.Second)
		}
		if h.ca.Issued() != 1 {
			t.Errorf("%d certificates", h.ca.Issued())
		}
		another := request()
		another.Subject.PodUID = "another"
		h.early(another, ahead) // of its own
	})
}

func TestCertificateIsNotCollectedAfterItsBeginIsWithheld(t *testing.T) {
	for name, end := range map[string]func(h *house){
		"in time": func(*house) { time.Sleep(ahead + 3*time.Minute) },
		"closed":  func(h *house) { h.Close() },
		"closed while a caller waits": func(h *house) {
			done := make(chan error, 1)
			go func() { _, err := h.within(time.Hour, request()); done <- err }()
			synctest.Wait()
			h.Close()
			if err := <-done; !errors.Is(err, ca.ErrUnavailable) {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFuture(t, func(h *house) {
				h.early(request(), ahead)
				end(h)
				if n := len(h.paper.Lines(t, "withheld")); n != 1 {
					t.Errorf("%d lines of withheld certificates", n)
				}
			})
		})
	}
}

// The policy in force when it is given out decides.
func TestPolicyThatChangesBeforeTheBeginCounts(t *testing.T) {
	inFuture(t, func(h *house) {
		done := make(chan error, 1)
		go func() { _, err := h.within(5*time.Minute, request()); done <- err }()
		synctest.Wait()
		other := mesh()
		other.Name = "other"
		if err := h.SetPolicy(policy(t, other)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ca.ErrAborted) {
			t.Errorf("got %v", err)
		}
	})
}
