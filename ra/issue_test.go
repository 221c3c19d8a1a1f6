package ra_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// inBubble runs a test by virtual time.
func inBubble(t *testing.T, change func(*ra.Config), test func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, change)
		defer func() { h.Close() }()
		synctest.Wait()
		test(h)
	})
}

func TestAuthorityLearnsWhoAsks(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.must(request())
		if got, want := h.ca.Requests()[0].Requester, web().String(); got != want || !strings.Contains(got, "shop") {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestVerifiedSubjectGetsGrantedNames(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		cert := h.must(request())
		if got := cert.Identity.String(); got != "spiffe://example.org/ns/shop/sa/web" {
			t.Errorf("the certificate is for %s", got)
		}
		leaf, err := pki.ParseCertificates(cert.Chain)
		if err != nil || cert.NotAfter.Sub(cert.NotBefore) > 24*time.Hour || pki.Fingerprint(leaf[0]) != cert.Fingerprint {
			t.Errorf("%v, %+v", err, cert)
		}
		if !cert.Roots.Contains(h.ca.Published[0]) || cert.Rule != "mesh" || cert.Authority != "ca" {
			t.Errorf("got %+v", cert)
		}
		line := h.paper.Lines(t, "issued")[0]
		for key, want := range map[string]any{
			"serial": cert.Serial, "fingerprint": cert.Fingerprint, "rule": "mesh", "authority": "ca", "request_id": cert.RequestID,
			"door": kubelet, "key_type": "ecdsa-p256", "signer": "ratest 1.0", "not_after": cert.NotAfter.Format(time.RFC3339),
		} {
			if line[key] != want {
				t.Errorf("the audit line's %s is %v, want %v", key, line[key], want)
			}
		}
		who := line["subject"].(map[string]any)
		if who["pod_uid"] != "pod-1" || who["verified"] != "pod certificate request" || who["cluster"] != "home" {
			t.Errorf("the audit line is about %v", who)
		}
	})
}

func TestCallerCannotChooseNames(t *testing.T) {
	evil := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/ns/kube-system/sa/admin"}
	for name, template := range map[string]*x509.CertificateRequest{
		"SPIFFE ID":   {URIs: []*url.URL{evil}},
		"DNS name":    {DNSNames: []string{"admin.example.org"}},
		"address":     {IPAddresses: []net.IP{{10, 0, 0, 1}}},
		"common name": {Subject: pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(h *house) {
				req := request()
				req.CSR = csr(0, template)
				if got := h.must(req).Identity.String(); got != "spiffe://example.org/ns/shop/sa/web" {
					t.Errorf("the certificate is for %s", got)
				}
			})
			inBubble(t, nil, func(h *house) { // an authority that certifies the CSR, whatever it claims
				h.ca.Change = func(leaf *x509.Certificate, csr *x509.CertificateRequest) {
					leaf.URIs, leaf.DNSNames, leaf.IPAddresses = append(leaf.URIs, csr.URIs...), csr.DNSNames, csr.IPAddresses
					leaf.Subject = csr.Subject
				}
				req := request()
				req.CSR = csr(0, template)
				h.refused(req, ca.ErrUnavailable)
				if n := len(h.paper.Lines(t, "discarded")); n != 1 {
					t.Errorf("%d certificates are recorded as discarded", n)
				}
				honest := request()
				honest.Subject.PodUID = "another pod"
				h.must(honest) // no other caller is stopped
			})
		})
	}
}

func TestLifetimeIsWhatRuleAndDoorAllow(t *testing.T) {
	rule := mesh()
	rule.MaxTTL = 12 * time.Hour
	for name, c := range map[string]struct {
		door  string
		asked time.Duration
		sent  time.Duration // zero: denied
	}{
		"less than the rule's":        {istio, 30 * time.Minute, 30 * time.Minute},
		"more than the rule's":        {istio, 24 * time.Hour, 12 * time.Hour},
		"none":                        {istio, 0, 12 * time.Hour},
		"less than the door's":        {kubelet, 30 * time.Minute, 0},
		"the least that the door has": {kubelet, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(c *ra.Config) { c.Policy = policy(t, rule) }, func(h *house) {
				h.must(request()) // what the authority backdates is known by now
				req := request()
				req.Door, req.TTL, req.CSR = c.door, c.asked, empty(1)
				if c.sent == 0 {
					h.refused(req, ca.ErrDenied)
					return
				}
				h.must(req)
				if got := h.ca.Requests()[1].TTL; got != c.sent {
					t.Errorf("%s were asked for, want %s", got, c.sent)
				}
			})
		})
	}
}

// The lifetime that a kubelet asks for includes the backdating, and none of it may be lost.
func TestBackdatingIsLearnedAndTakenOff(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		h.ca.Backdate = 2*time.Minute + 29*time.Second
		for n := range 3 {
			req := request()
			req.TTL, req.Subject.PodUID = time.Hour, string(rune('a'+n))
			if cert := h.must(req); cert.NotAfter.Sub(cert.NotBefore) != time.Hour {
				t.Errorf("the certificate lives for %s", cert.NotAfter.Sub(cert.NotBefore))
			}
		}
		if n := len(h.ca.Requests()); n != 4 {
			t.Errorf("%d calls, the first alone needs another", n)
		}
	})
}

// A rule's longest lifetime is that of the leaf at each door. cert-manager renews at once what lives
// longer than its renewBefore allows for.
func TestLongestLifetimeIncludesTheBackdating(t *testing.T) {
	rule := mesh()
	rule.MaxTTL = 12 * time.Hour
	inBubble(t, func(c *ra.Config) { c.Policy = policy(t, rule) }, func(h *house) {
		h.ca.Backdate = 2 * time.Minute
		for n, c := range []struct {
			door        string
			asked, want time.Duration
		}{
			{istio, 24 * time.Hour, 12*time.Hour - 3*time.Minute}, // 5 minutes are assumed first
			{istio, 24 * time.Hour, 12 * time.Hour}, {istio, 0, 12 * time.Hour}, {kubelet, 24 * time.Hour, 12 * time.Hour},
			{istio, 12*time.Hour - time.Minute, 12 * time.Hour}, {istio, time.Hour, time.Hour + 2*time.Minute}, {kubelet, time.Hour, time.Hour},
		} {
			req := request()
			req.Door, req.TTL, req.Subject.PodUID = c.door, c.asked, fmt.Sprint(n)
			if cert := h.must(req); cert.NotAfter.Sub(cert.NotBefore) != c.want {
				t.Errorf("%s, %s asked for: the certificate lives for %s, want %s", c.door, c.asked, cert.NotAfter.Sub(cert.NotBefore), c.want)
			}
		}
		if n := len(h.ca.Requests()); n != 7 {
			t.Errorf("%d calls for 7 certificates", n)
		}
	})
}

// An authority that cannot keep the longest lifetime stops the rule; accept_longer_ttl lets it pass.
func TestBackdatingOfMoreThanTheLongestLifetimeIsRefused(t *testing.T) {
	rule := mesh()
	rule.MaxTTL = 90 * time.Minute
	for _, accept := range []bool{false, true} {
		inBubble(t, func(c *ra.Config) { c.Policy, c.Authorities[0].AcceptLongerTTL = policy(t, rule), &accept }, func(h *house) {
			h.ca.Backdate = 2 * time.Hour
			req := request()
			req.Door = istio
			if cert, err := h.issue(req); accept != (err == nil) || !accept && cert.Chain != nil {
				t.Errorf("longer ones accepted: %t: %v", accept, err)
			}
		})
	}
}

// A thousand pods that start with the engine must not cost a certificate each that no caller gets.
func TestOneCallLearnsTheBackdatingForAll(t *testing.T) {
	const pods, failures = 40, 2
	inBubble(t, nil, func(h *house) {
		var calls atomic.Int32
		h.ca.Backdate = 2 * time.Minute
		h.ca.Before = func(context.Context, ca.SignRequest) error {
			time.Sleep(time.Second)
			if calls.Add(1) <= failures { // one after the other
				return ca.ErrUnavailable
			}
			return nil
		}
		var all sync.WaitGroup
		start := time.Now()
		for n := range pods {
			req := request()
			req.Subject.PodUID = fmt.Sprint(n)
			all.Go(func() {
				if _, err := h.issue(req); err != nil && !errors.Is(err, ca.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := h.ca.Issued(); n != pods-failures+1 {
			t.Errorf("%d certificates for %d pods", n, pods-failures)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("they took %s: one call at a time", took)
		}
	})
}

func TestUsagesAreTheRules(t *testing.T) {
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for name, c := range map[string]struct {
		rule ra.Usages
		leaf []x509.ExtKeyUsage
		good bool
	}{
		"any":                       {ra.AnyUsage, []x509.ExtKeyUsage{client}, true},
		"server alone":              {ra.Server, []x509.ExtKeyUsage{server}, true},
		"client alone":              {ra.Client, []x509.ExtKeyUsage{client}, true},
		"both":                      {ra.Both, []x509.ExtKeyUsage{server, client}, true},
		"both, where one is asked":  {ra.Client, []x509.ExtKeyUsage{server, client}, false},
		"one, where both are asked": {ra.Both, []x509.ExtKeyUsage{client}, false},
		"the other one":             {ra.Server, []x509.ExtKeyUsage{client}, false},
		"everything":                {ra.Server, []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, false},
		"no extension":              {ra.Client, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			rule := mesh()
			rule.Usages = c.rule
			inBubble(t, func(conf *ra.Config) { conf.Policy = policy(t, rule) }, func(h *house) {
				h.ca.Change = func(leaf *x509.Certificate, _ *x509.CertificateRequest) { leaf.ExtKeyUsage = c.leaf }
				if _, err := h.issue(request()); (err == nil) != c.good {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, reason := range []*ca.Error{
		ca.ErrInvalid, ca.ErrDenied, ca.ErrRateLimited, ca.ErrUnavailable, ca.ErrAborted, ca.ErrInternal, ca.ErrNotConfigured, ca.ErrUnauthenticated,
	} {
		t.Run(reason.Reason.String(), func(t *testing.T) {
			inBubble(t, nil, func(h *house) {
				h.ca.Before = func(context.Context, ca.SignRequest) error {
					return &ca.Error{Reason: reason.Reason, Message: "as planned", RetryAfter: 42 * time.Second}
				}
				if err := h.refused(request(), reason); ca.RetryAfter(err) != 42*time.Second || !strings.Contains(err.Error(), "as planned") {
					t.Errorf("got %v, after %s", err, ca.RetryAfter(err))
				}
				synctest.Wait() // metrics follow the caller
				again := reason // at once, and the authority is left alone
				if ca.ActionFor(reason) == ca.EndAttempt {
					again = ca.ErrRateLimited // what is final is so for one request
				}
				other := request()
				other.CSR = empty(1)
				h.refused(other, again)
				if n := len(h.ca.Requests()); n != 1 {
					t.Errorf("%d calls within the wait", n)
				}
				synctest.Wait()
				if got := h.results(); !slices.Equal(got, []string{reason.Reason.String(), again.Reason.String()}) {
					t.Errorf("metrics say %q", got)
				}
			})
		})
	}
}

func TestDeniedSubjectReachesNoAuthority(t *testing.T) {
	inBubble(t, nil, func(h *house) {
		req := request()
		req.Subject.Cluster = "elsewhere"
		h.refused(req, ca.ErrDenied)
		req = request()
		req.Door = "back door"
		h.refused(req, ca.ErrInvalid)
		req = request()
		req.Object = strings.Repeat("o", 300)
		h.refused(req, ca.ErrInvalid)
		if len(h.ca.Requests()) > 0 {
			t.Error("the authority was asked")
		}
	})
}

func TestRejectedTokenIsReadOnceMore(t *testing.T) {
	tokens := []ca.Token{"secret-token-one", "secret-token-two"}
	var rejected []ca.Token
	inBubble(t, func(c *ra.Config) {
		c.Authorities[0].Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: tokens[len(rejected)]}, nil }
		c.Authorities[0].TokenRejected = func(token ca.Token) { rejected = append(rejected, token) }
	}, func(h *house) {
		h.ca.Before = func(_ context.Context, req ca.SignRequest) error {
			if req.Token != "secret-token-two" {
				return ca.Errorf(ca.Unauthenticated, "the token %s is over", req.Token.Reveal())
			}
			return nil
		}
		h.must(request())
		tokens = []ca.Token{"secret-token-one", "secret-token-one", "secret-token-one"}
		other := request()
		other.Subject.PodUID = "2"
		err := h.refused(other, ca.ErrUnauthenticated)
		if all := err.Error() + h.log.String() + h.paper.String(); strings.Contains(all, "secret-token") {
			t.Error("a token is shown")
		}
	})
}
