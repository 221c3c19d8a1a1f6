package ra_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestRepeatHasSameIDOverRestart(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Known = map[string]ca.Certificate{}
		req := request()
		req.Object, req.Asked = "uid-of-the-request", time.Now()
		first := h.must(req)
		h.Close()
		h.open()
		synctest.Wait()
		time.Sleep(4 * time.Minute)
		if again := h.must(req); again.Serial != first.Serial || again.RequestID != first.RequestID {
			t.Errorf("a second certificate after the restart: %s, %s", again.RequestID, first.RequestID)
		}
		time.Sleep(2 * time.Minute)
		if later := h.must(req); later.Serial == first.Serial || later.RequestID == first.RequestID {
			t.Error("a repeat after more than five minutes brings the old certificate")
		}
		ids := map[string]bool{}
		for _, change := range []func(*ra.Request){
			func(r *ra.Request) { r.Object = "another" }, func(r *ra.Request) { r.CSR = empty(3) },
			func(r *ra.Request) { r.TTL = 2 * time.Hour }, func(r *ra.Request) { r.Subject.ServiceAccount = "db" },
		} {
			other := req
			change(&other)
			ids[h.must(other).RequestID] = true
		}
		if len(ids) != 4 {
			t.Errorf("different requests share an ID: %v", ids)
		}
		for id := range ids {
			if len(id) != 36 || id[14] != '8' || !slices.Contains([]byte("89ab"), id[19]) {
				t.Errorf("%s is not a UUID of version 8", id)
			}
		}
	})
}

// A person may take hours to approve a request. A repeat with another ID would be another request.
func TestPendingRequestKeepsItsID(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Fail(&ca.Error{Reason: ca.Pending, Message: "approve it", RetryAfter: 30 * time.Second})
		req := request()
		for range 60 {
			if err := h.refused(req, ca.ErrPending); ca.RetryAfter(err) <= 0 || ca.RetryAfter(err) > 30*time.Second {
				t.Fatalf("the caller is to come back after %s", ca.RetryAfter(err))
			}
			time.Sleep(31 * time.Second)
		}
		h.ca.Fail(nil)
		cert := h.must(req)
		requests := h.ca.Requests()
		if n := len(requests); n < 50 {
			t.Errorf("%d calls in half an hour", n)
		}
		for _, r := range requests {
			if r.ID != cert.RequestID {
				t.Fatalf("a repeat is %s, the certificate is for %s", r.ID, cert.RequestID)
			}
		}
		if results := h.results(); !slices.Contains(results, "pending") {
			t.Errorf("the results are %q", results)
		}
		time.Sleep(6 * time.Minute)
		if later := h.must(req); later.RequestID == cert.RequestID {
			t.Error("a new request has the ID of one that was decided")
		}
	})
}

// An outage of the authority decides nothing.
func TestPendingRequestKeepsItsIDOverAnOutage(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		pending := &ca.Error{Reason: ca.Pending, RetryAfter: 30 * time.Second}
		for range 3 {
			for _, answer := range []*ca.Error{pending, {Reason: ca.Unavailable}, {Reason: ca.Deadline}, {Reason: ca.Unknown}} {
				h.ca.Fail(answer)
				h.refused(request(), answer)
				time.Sleep(6 * time.Minute)
			}
		}
		h.ca.Fail(nil)
		cert := h.must(request())
		for _, r := range h.ca.Requests() {
			if r.ID != cert.RequestID {
				t.Fatalf("a repeat is %s, the certificate is for %s", r.ID, cert.RequestID)
			}
		}
	})
}

// Of one holder, a few are remembered: it may make a key for each.
func TestPendingRequestsOfOneHolderAreBounded(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Fail(&ca.Error{Reason: ca.Pending, RetryAfter: time.Second})
		for n := range 10 {
			req := request()
			req.CSR = empty(n)
			h.refused(req, ca.ErrPending)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(10 * time.Minute)
		ids := map[string]bool{}
		for n := range 10 {
			req := request()
			req.CSR = empty(n)
			h.refused(req, ca.ErrPending)
			time.Sleep(2 * time.Second)
		}
		for _, r := range h.ca.Requests() {
			ids[r.ID] = true
		}
		if len(ids) < 12 || len(ids) > 20 {
			t.Errorf("%d requests for 10 keys, of which 8 are remembered", len(ids))
		}
	})
}

// An authority that recognizes a repeat for longer than we mean it to answers with what the
// door cannot take.
func TestStaleRepeatIsAskedAnew(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Known = map[string]ca.Certificate{}
		h.ca.Backdate = 2 * time.Minute
		if _, err := h.pod(); err != nil { // the backdating is known from now on
			t.Fatal(err)
		}
		req := request()
		req.Object, req.Asked = "uid", time.Now()
		first := h.must(req)
		time.Sleep(4 * time.Minute)
		again := h.must(req)
		if again.Serial == first.Serial || time.Since(again.NotBefore) > 5*time.Minute {
			t.Errorf("the certificate began %s ago", time.Since(again.NotBefore))
		}
		if s := h.Status()[0]; len(s.Stopped) > 0 {
			t.Errorf("the authority is stopped: %+v", s.Stopped)
		}
	})
}

func TestPolicyChangeEndsWaitingRequests(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Limits = ra.Limits{Rate: 0.1, Burst: 1} }, func(h *house) {
		h.must(request())
		done := make(chan error, 2)
		for _, account := range []string{"web", "db"} {
			req := request()
			req.CSR, req.Subject.ServiceAccount, req.Subject.PodUID = empty(1), account, account
			go func() { _, err := ra.Certify(context.WithoutCancel(h.t.Context()), h, req); done <- err }()
		}
		synctest.Wait()
		rule := mesh()
		rule.Match.ServiceAccounts = []string{"web"}
		if err := h.SetPolicy(policy(t, rule)); err != nil {
			t.Fatal(err)
		}
		errs := []error{<-done, <-done}
		if !slices.Contains(errs, nil) || !errors.Is(errors.Join(errs...), ca.ErrAborted) {
			t.Errorf("got %v", errs)
		}
		if err := h.SetPolicy(policy(t, ra.Rule{Name: "x", Authority: "none", Match: ra.Match{Doors: []string{"none"}}, Names: mesh().Names})); err == nil ||
			!strings.Contains(err.Error(), `no authority "none"`) || !strings.Contains(err.Error(), `no door "none"`) {
			t.Errorf("got %v", err)
		}
	})
}

// What the authority signs for a subject that is taken out meanwhile is given to no caller, also if it
// was written down as issued by then.
func TestCertificateForWhoIsTakenOutMeanwhileIsDiscarded(t *testing.T) {
	for name, test := range map[string]struct {
		slow   func(h *house) (goOn chan struct{})
		issued int
	}{
		"while the authority works": {func(h *house) chan struct{} {
			goOn := make(chan struct{})
			h.ca.Set(func() { h.ca.Before = func(context.Context, ca.SignRequest) error { <-goOn; return nil } })
			return goOn
		}, 0},
		"while the audit log is written": {func(h *house) chan struct{} { return h.paper.Hangs() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(h *house) {
				goOn, done := test.slow(h), make(chan error, 1)
				go func() { _, err := h.issue(request()); done <- err }()
				synctest.Wait()
				other := mesh()
				other.Match.ServiceAccounts = []string{"db"}
				if err := h.SetPolicy(policy(t, other)); err != nil {
					t.Fatal(err)
				}
				close(goOn)
				if err := <-done; !errors.Is(err, ca.ErrAborted) {
					t.Errorf("got %v", err)
				}
				lines := h.paper.Lines(t, "discarded")
				if len(lines) != 1 || lines[0]["reason"] != "aborted" || lines[0]["serial"] == nil || len(h.paper.Lines(t, "issued")) != test.issued {
					t.Errorf("the audit log has %s", h.paper)
				}
				if got := h.results(); !slices.Equal(got, []string{"aborted"}) {
					t.Errorf("the metrics have %q", got)
				}
				if s := h.Status()[0]; len(s.Stopped) > 0 {
					t.Errorf("the authority is stopped: %+v", s.Stopped)
				}
				h.refused(request(), ca.ErrDenied)
				if err := h.SetPolicy(policy(t, mesh())); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				h.must(request())
			})
		})
	}
}

func TestKeptCertificateIsForThePolicyInForce(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		goOn := make(chan struct{})
		h.ca.Set(func() { h.ca.Before = func(context.Context, ca.SignRequest) error { <-goOn; return nil } })
		ctx, cancel := context.WithCancel(h.t.Context())
		gone := make(chan error, 1)
		go func() { _, err := ra.Certify(ctx, h, request()); gone <- err }()
		synctest.Wait()
		cancel()
		<-gone
		close(goOn)
		synctest.Wait()
		rule := mesh()
		rule.Usages = ra.Client
		if err := h.SetPolicy(policy(t, rule)); err != nil {
			t.Fatal(err)
		}
		_, _ = h.issue(request())
		if n := h.ca.Issued(); n != 2 {
			t.Errorf("a certificate that was kept is given out for other usages: %d were made", n)
		}
	})
}
