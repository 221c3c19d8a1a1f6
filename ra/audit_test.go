package ra_test

import (
	"context"
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

func TestNothingIsGivenOutThatIsNotAudited(t *testing.T) {
	for name, breakIt := range map[string]func(*ratest.Audit){
		"full disk":       func(p *ratest.Audit) { p.Err = errors.New("no space left") },
		"torn line":       func(p *ratest.Audit) { p.Err, p.Tear = errors.New("no space left"), true },
		"disk that hangs": func(p *ratest.Audit) { p.Hang = make(chan struct{}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(h *house) {
				h.paper.Set(func() { breakIt(h.paper) })
				err := h.refused(request(), ca.ErrUnavailable)
				if !strings.Contains(err.Error(), "audit log cannot be written") {
					t.Error(err)
				}
				asked := len(h.ca.Requests())
				for n := range 20 { // each would cost a certificate
					req := request()
					req.Subject.PodUID = fmt.Sprint("pod ", n)
					h.refused(req, ca.ErrUnavailable)
				}
				if n := len(h.ca.Requests()); n != asked || n > 1 {
					t.Errorf("%d calls while nothing can be given out", n)
				}
				h.paper.Set(func() {
					if h.paper.Hang != nil {
						close(h.paper.Hang)
					}
					h.paper.Err, h.paper.Hang = nil, nil
				})
				time.Sleep(time.Minute)
				cert := h.must(request())
				text := h.paper.String()
				if !strings.Contains(text, `"event":"resumed"`) || !strings.Contains(text, cert.Fingerprint) {
					t.Errorf("the log has %s", text)
				}
				for line := range strings.Lines(text) { // what is torn stays apart
					if (strings.Contains(line, cert.Fingerprint) || strings.Contains(line, "resumed")) && strings.LastIndex(line, `{"time"`) != 0 {
						t.Errorf("the line is %s", line)
					}
				}
			})
		})
	}
}

// A sync takes milliseconds, so lines that wait for one go into the next together. If that
// fails, none of them counts.
func TestLinesThatWaitAreSyncedTogether(t *testing.T) {
	for name, fail := range map[string]error{"synced": nil, "full disk": errors.New("no space left")} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(h *house) {
				h.must(request())
				first := h.paper.Hangs()
				const all = 12
				ended := make(chan error, all)
				for n := range all {
					req := request()
					req.Subject.PodUID = fmt.Sprint("pod ", n)
					go func() {
						_, err := ra.Certify(h.t.Context(), h, req)
						ended <- err
					}()
				}
				synctest.Wait()
				if n := len(h.ca.Requests()); n != all+1 || len(ended) > 0 {
					t.Fatalf("%d calls, %d ended before the sync", n, len(ended))
				}
				h.paper.Set(func() { h.paper.Hang, h.paper.Err = nil, fail })
				close(first)
				for range all {
					if err := <-ended; (err == nil) != (fail == nil) {
						t.Errorf("got %v", err)
					}
				}
				if lines, syncs := len(h.paper.Lines(t, "issued")), h.paper.Syncs(); fail == nil && (lines != all+1 || syncs != 3) || fail != nil && (lines != 1 || syncs != 1) {
					t.Errorf("%d lines, %d syncs", lines, syncs)
				}
			})
		})
	}
}

func TestEqualRefusalsAreCountedTogether(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		req := request()
		req.Subject.Cluster = "elsewhere"
		for range 1000 {
			h.refused(req, ca.ErrDenied)
		}
		if n := len(h.paper.Lines(t, "refused")); n != 1 {
			t.Errorf("%d lines at once", n)
		}
		time.Sleep(61 * time.Second)
		lines := h.paper.Lines(t, "refused")
		if len(lines) != 2 || lines[0]["count"] != 1.0 || lines[1]["count"] != 999.0 || lines[1]["text"] != "no rule matches" || lines[1]["reason"] != "denied" {
			t.Errorf("the lines are %v", lines)
		}
		time.Sleep(5 * time.Minute)
		if n := len(h.paper.Lines(t, "refused")); n != 2 {
			t.Errorf("%d lines though nothing was refused", n)
		}
	})
}

func TestFloodOfDifferentRefusalsIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("many of them")
	}
	inBubble(t, nil, func(h *house) {
		for n := range 20000 {
			req := request()
			req.Subject.Cluster, req.Subject.Pod = "elsewhere", fmt.Sprint("pod-", n)
			h.refused(req, ca.ErrDenied)
		}
		h.Close()
		lines := h.paper.Lines(t, "refused")
		total := 0.0
		for _, line := range lines {
			total += line["count"].(float64)
		}
		if len(lines) > 1300 || total != 20000 {
			t.Errorf("%d lines, for %v refusals", len(lines), total)
		}
	})
}

func TestRefusalsAreCountedWhileLogIsBroken(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.paper.Set(func() { h.paper.Err = errors.New("no space left") })
		req := request()
		req.Subject.Cluster = "elsewhere"
		for range 50 {
			h.refused(req, ca.ErrDenied)
		}
		time.Sleep(2 * time.Minute)
		h.paper.Set(func() { h.paper.Err = nil })
		h.Close()
		if lines := h.paper.Lines(t, "refused"); len(lines) != 1 || lines[0]["count"] != 50.0 {
			t.Errorf("the lines are %v", lines)
		}
	})
}

// A stranger who hangs up must not stop the others.
func TestCallerWhoIsGoneDoesNotBreakAuditLog(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		gone, cancel := context.WithCancel(h.t.Context())
		cancel()
		for n := range 100 {
			req := request()
			req.Subject.Cluster, req.Subject.Pod = "elsewhere", fmt.Sprint("pod-", n)
			if _, err := ra.Certify(gone, h, req); !errors.Is(err, ca.ErrDenied) {
				t.Errorf("got %v", err)
			}
		}
		if n := len(h.paper.Lines(t, "refused")); n != 100 {
			t.Errorf("%d lines", n)
		}
		h.must(request())
		if strings.Contains(h.paper.String(), "resumed") {
			t.Error("the log was taken to be broken")
		}
	})
}

func TestForeignTextInAuditIsBoundedAndEscaped(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		req := request()
		req.Subject.Pod, req.Subject.Verified = strings.Repeat("\n{\"event\":\"issued\"}", 10000), "\x1b[31m"
		h.refused(req, ca.ErrDenied)
		if text := h.paper.String(); len(text) > 2500 || strings.Count(text, "\n") != 1 || strings.Contains(text, "\x1b") {
			t.Errorf("%d bytes: %.300q", len(text), text)
		}
	})
}

func TestEngineWithoutAuditLogIsRefused(t *testing.T) {
	_, err := ra.New(ra.Config{Policy: policy(t, mesh()), Authorities: []ra.Authority{{Name: "ca", Client: ratest.NewCA(t)}}})
	if err == nil || !strings.Contains(err.Error(), "no audit log") {
		t.Errorf("got %v", err)
	}
}

func TestWrongConfigurationIsRefusedWithAllFaults(t *testing.T) {
	_, err := ra.New(ra.Config{
		Doors: []ra.Door{{}, {Name: "d", MinLifetime: time.Hour, MaxLifetime: time.Minute}}, Budget: ra.Budget{Holder: -1},
		Authorities: []ra.Authority{{}, {Name: "a"}, {Name: "a", Client: ratest.NewCA(t), Timeout: -1}, {Name: "b", Client: ratest.NewCA(t), Limits: ra.Limits{Rate: -1}}},
	})
	for _, text := range []string{
		"no policy", "no audit log", "budget", "door has no name", `door "d"`, "authority has no name", `"a" has no client`, "two authorities", "timeout is -1ns", `"b": limits`,
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing in: %v", text, err)
		}
	}
}

// The fault is known while no caller asks, and its end as well: a replica that is not ready gets no
// requests that could show it.
func TestFaultOfTheAuditLogIsReportedUntilItEnds(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		if err := h.AuditFault(); err != nil {
			h.t.Error(err)
		}
		h.paper.Set(func() { h.paper.Err = errors.New("no space left on device") })
		h.refused(request(), ca.ErrUnavailable)
		time.Sleep(time.Hour)
		if err := h.AuditFault(); err == nil || !strings.Contains(err.Error(), "no space left") {
			h.t.Errorf("got %v", err)
		}
		h.paper.Set(func() { h.paper.Err = nil })
		time.Sleep(2 * time.Minute)
		if err := h.AuditFault(); err != nil || len(h.paper.Lines(h.t, "resumed")) != 1 {
			h.t.Errorf("%v; %s", err, h.paper)
		}
	})
}

func TestAuthorityIsDueWhileRequestsWait(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		answer := make(chan struct{})
		h.ca.Set(func() { h.ca.Before = func(context.Context, ca.SignRequest) error { <-answer; return nil } })
		done := make(chan error)
		go func() { _, err := h.issue(request()); done <- err }()
		synctest.Wait()
		if !h.Due("ca") || h.Due("other") {
			h.t.Error("a request waits, and its authority is not due")
		}
		close(answer)
		if err := <-done; err != nil || h.Due("ca") {
			h.t.Errorf("%v, or it is due afterwards", err)
		}
	})
}
