package ra_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestWithheldCertificateIsAnOutcomeOfItsOwn(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		o := h.prepare(request())
		cert, err := h.Issue(h.t.Context(), o)
		if err != nil {
			h.t.Fatal(err)
		}
		synctest.Wait() // for the outcome
		o.Withhold(h.t.Context(), cert, errors.New("the record of renewals is full"))
		lines := h.paper.Lines(h.t, "withheld")
		if len(lines) != 1 || lines[0]["serial"] != cert.Serial || lines[0]["rule"] != "mesh" || lines[0]["authority"] != "ca" || lines[0]["text"] != "the record of renewals is full" {
			h.t.Errorf("%v", lines)
		}
		if got := h.results(); !slices.Equal(got, []string{"issued", "withheld"}) {
			h.t.Errorf("outcomes %q", got)
		}
	})
}

// leaves has a caller leave while the authority works, and the authority answer.
func (h *house) leaves(n int) {
	h.t.Helper()
	answer := make(chan struct{})
	h.ca.Set(func() { h.ca.Before = func(context.Context, ca.SignRequest) error { <-answer; return nil } })
	ctx, leave := context.WithCancel(h.t.Context())
	done := h.in(ctx, "default", n)
	synctest.Wait()
	leave()
	if <-done == nil {
		h.t.Error("who left has a certificate")
	}
	close(answer)
	synctest.Wait()
	h.ca.Fail(nil)
}

func TestUncollectedCertificateIsWithheld(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.leaves(0)
		time.Sleep(3 * time.Minute)
		if lines := h.paper.Lines(h.t, "withheld"); len(lines) != 1 {
			h.t.Errorf("%v", lines)
		}
		if got := h.results(); !slices.Equal(got, []string{"canceled", "issued", "withheld"}) && !slices.Equal(got, []string{"issued", "withheld"}) {
			h.t.Errorf("outcomes %q", got)
		}
	})
}

func TestCertificateThatIsCollectedLaterIsNotWithheld(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.leaves(0)
		req := request()
		req.Subject.Namespace, req.Subject.PodUID = "default", "default0"
		h.must(req)
		time.Sleep(3 * time.Minute)
		if lines := h.paper.Lines(h.t, "withheld"); len(lines) != 0 || h.ca.Issued() != 1 {
			h.t.Errorf("%v, %d issued", lines, h.ca.Issued())
		}
	})
}

func TestCertificateUncollectedAtTheEndIsWithheld(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.leaves(0)
		h.Close()
		if lines := h.paper.Lines(h.t, "withheld"); len(lines) != 1 {
			h.t.Errorf("%v", lines)
		}
	})
}

// One line for all, as each would wait for a disk that hangs.
func TestEndWaitsOnceForADiskThatHangs(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		for n := range 5 {
			h.leaves(n)
		}
		hang := h.paper.Hangs()
		began := time.Now()
		h.Close()
		if took := time.Since(began); took > 15*time.Second {
			h.t.Errorf("it took %s", took)
		}
		close(hang)
		synctest.Wait()
	})
}
