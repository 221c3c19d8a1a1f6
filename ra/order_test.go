package ra_test

import (
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func (h *house) prepare(req ra.Request) *ra.Order {
	h.t.Helper()
	o, err := h.Prepare(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

func TestPrepareSpendsNothingAndLeavesNoTrace(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Budget = ra.Budget{Holder: 1, HolderEvery: time.Hour} }, func(h *house) {
		for range 100 {
			h.prepare(request())
		}
		h.must(request())
		if h.ca.Issued() != 1 || len(h.results()) != 1 || len(h.paper.Lines(t, "refused")) != 0 {
			t.Errorf("%d issued, outcomes %v", h.ca.Issued(), h.results())
		}
	})
}

// A policy in force decides, not the one that was when the order was prepared.
func TestOrderEndsWithItsPolicy(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		o := h.prepare(request())
		renamed := mesh()
		renamed.Name = "anew"
		if err := h.SetPolicy(policy(t, renamed)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Issue(h.t.Context(), o); !errors.Is(err, ca.ErrAborted) || h.ca.Issued() > 0 {
			t.Errorf("%v, %d issued", err, h.ca.Issued())
		}
		if _, err := h.Issue(h.t.Context(), h.prepare(request())); err != nil {
			t.Error(err)
		}
	})
}

func TestOrderIsLimited(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		o := h.prepare(request())
		o.Limit(3 * time.Hour)
		o.Limit(5 * time.Hour)
		cert, err := h.Issue(h.t.Context(), o)
		if err != nil || cert.NotAfter.Sub(cert.NotBefore) > 3*time.Hour {
			t.Errorf("%v: lives for %s", err, cert.NotAfter.Sub(cert.NotBefore))
		}
		o = h.prepare(request())
		o.Limit(time.Minute) // less than the door takes
		if _, err := h.Issue(h.t.Context(), o); !ra.Refused(err) || h.ca.Issued() != 1 {
			t.Errorf("%v, %d issued", err, h.ca.Issued())
		}
	})
}

// What a door refuses has the rule and the authority, with and without an order.
func TestRefusalOfADoorIsAudited(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.prepare(request()).Refuse(h.t.Context(), errors.New("it wants to be an administrator"))
		h.Refuse(h.t.Context(), request(), ca.Errorf(ca.Invalid, "it cannot be read"))
		stranger := request()
		stranger.Subject.Cluster = "elsewhere"
		h.Refuse(h.t.Context(), stranger, errors.New("it cannot be true"))
		lines := h.paper.Lines(t, "refused")
		if len(lines) != 3 || !slices.Equal(h.results(), []string{"denied", "invalid request", "denied"}) {
			t.Fatalf("%v, outcomes %q", lines, h.results())
		}
		for i, line := range lines {
			if known := i < 2; line["door"] != kubelet || (line["rule"] == "mesh") != known || (line["authority"] == "ca") != known {
				t.Errorf("%v", line)
			}
		}
	})
}

func TestNamesOfTheCSRAreAskedFor(t *testing.T) {
	rule := mesh()
	rule.Names.DNSNames, rule.Names.Requested = []string{"fixed.example.org"}, []string{"*.apps.example.org"}
	inBubble(t, func(c *ra.Config) { c.Policy = policy(t, rule) }, func(h *house) {
		req := request()
		req.NamesOfCSR, req.CSR = true, csr(0, &x509.CertificateRequest{DNSNames: []string{"fixed.example.org", "a.apps.example.org"}})
		if got := h.prepare(req).Decision().Identity.DNSNames; !slices.Equal(got, []string{"a.apps.example.org", "fixed.example.org"}) {
			t.Errorf("%q", got)
		}
		req.CSR = csr(0, &x509.CertificateRequest{DNSNames: []string{"other.example.org"}})
		if err := h.refused(req, ca.ErrDenied); !errors.Is(err, ra.ErrNames) {
			t.Error(err)
		}
	})
}

// A certificate for a second has ended before its caller receives it.
func TestRequestForLessThanTheLeastOfTheDoor(t *testing.T) {
	short := mesh()
	short.MaxTTL = 30 * time.Second
	for name, c := range map[string]struct {
		rule       ra.Rule
		ttl, limit time.Duration
		want       time.Duration
	}{
		"a second":                  {mesh(), time.Second, 0, time.Minute},
		"two minutes":               {mesh(), 2 * time.Minute, 0, 2 * time.Minute},
		"a rule for half a minute":  {short, time.Second, 0, 27 * time.Second}, // backdating is assumed
		"the limit of its renewals": {mesh(), time.Second, 10 * time.Second, 10 * time.Second},
		"no lifetime":               {mesh(), 0, 0, 24*time.Hour - 5*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(conf *ra.Config) {
				conf.Policy, conf.Doors = policy(t, c.rule), []ra.Door{{Name: istio, LeastTTL: time.Minute}}
			}, func(h *house) {
				req := request()
				req.Door, req.TTL = istio, c.ttl
				o := h.prepare(req)
				if c.limit > 0 {
					o.Limit(c.limit)
				}
				if _, err := h.Issue(h.t.Context(), o); err != nil || h.ca.Requests()[0].TTL != c.want {
					h.t.Errorf("%v: asked for %s, want %s", err, h.ca.Requests()[0].TTL, c.want)
				}
			})
		})
	}
}

func TestOrderOfAnotherEngineIsRefused(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		other := ratest.Engine(t, h.config)
		defer other.Close()
		if _, err := other.Issue(h.t.Context(), h.prepare(request())); !errors.Is(err, ca.ErrInvalid) || h.ca.Issued() > 0 {
			t.Errorf("%v, %d issued", err, h.ca.Issued())
		}
	})
}

// What is left of a chain of renewals may be nothing.
func TestOrderLimitedToNothingGetsNothing(t *testing.T) {
	for _, limit := range []time.Duration{0, -time.Hour} {
		inBubble(t, nil, func(h *house) {
			req := request()
			req.Door = istio
			o := h.prepare(req)
			o.Limit(limit)
			o.Limit(time.Hour)
			if _, err := h.Issue(h.t.Context(), o); !ra.Refused(err) || h.ca.Issued() > 0 {
				t.Errorf("limited to %s: %v, %d issued", limit, err, h.ca.Issued())
			}
		})
	}
}

// The authority's ability is known only as the call is made.
func TestRefusalOfWhatTheAuthorityCannotCertifyIsAudited(t *testing.T) {
	inBubble(t, func(c *ra.Config) { c.Authorities[0].Client = struct{ ca.Client }{c.Authorities[0].Client} }, func(h *house) {
		req := request()
		req.Door, req.CSR = istio, csr(0, &x509.CertificateRequest{DNSNames: []string{"other.example.org"}})
		h.refused(req, ca.ErrInvalid)
		if lines := h.paper.Lines(t, "refused"); len(lines) != 1 || lines[0]["rule"] != "mesh" || lines[0]["reason"] != "invalid request" {
			t.Errorf("%v", lines)
		}
	})
}
