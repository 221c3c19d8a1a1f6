package ra_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// FuzzAttributes lets a caller choose each of its names: whatever is granted has the labels
// and segments of the template, and nothing that a reader could take for more.
func FuzzAttributes(f *testing.F) {
	for _, value := range []string{"web", "payments.prod", "../x", "a/b", "*", "%2e", "\x00", "xn--a", "WEB", "-", "。"} {
		f.Add(value, value)
	}
	rule := mesh()
	rule.Names.DNSNames = []string{"{pod}.{namespace}.pod.example.org"}
	p := policy(f, rule)
	f.Fuzz(func(t *testing.T, pod, account string) {
		d := p.Try(with(func(s *ra.Subject) { s.Pod, s.ServiceAccount = pod, account }), "door")
		if d.Denied != "" {
			return
		}
		id, dns := d.Identity.SPIFFEID, d.Identity.DNSNames
		if id.Path != "/ns/shop/sa/"+account || strings.Count(id.String(), "/") != 6 || strings.ContainsAny(id.String(), "%?#@*") {
			t.Errorf("service account %q has %s", account, id)
		}
		if len(dns) != 1 || dns[0] != pod+".shop.pod.example.org" || strings.Count(dns[0], ".") != 4 {
			t.Errorf("pod %q has %q", pod, dns)
		}
	})
}

// closed refuses everything, and watches what it is asked for.
type closed struct{ t testing.TB }

func (closed) CertifiesNames(context.Context) error { return nil }
func (c closed) CSRSign(_ context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if req.SubjectID != "spiffe://example.org/ns/shop/sa/web" || len(req.DNSNames) > 0 {
		c.t.Errorf("asked for %s, %q", req.SubjectID, req.DNSNames)
	}
	return ca.Certificate{}, ca.ErrDenied
}

// FuzzCSR sends anything as a CSR.
func FuzzCSR(f *testing.F) {
	f.Add(empty(0))
	f.Add(empty(0)[:100])
	e := ratest.Engine(f, ra.Config{
		Policy: policy(f, mesh()), Audit: ratest.NoAudit, Log: slog.New(slog.DiscardHandler), Doors: []ra.Door{{Name: istio}},
		Authorities: []ra.Authority{{Name: "ca", Client: closed{f}, Limits: ra.Limits{Rate: 1e9, Burst: 1 << 30}}},
	})
	f.Cleanup(e.Close)
	pods := 0
	f.Fuzz(func(t *testing.T, pem []byte) {
		pods++ // none waits after the failure of the one before
		pod := with(func(s *ra.Subject) { s.PodUID = fmt.Sprint(pods) })
		if _, err := ra.Certify(t.Context(), e, ra.Request{Subject: pod, Door: istio, CSR: pem}); !errors.Is(err, ca.ErrInvalid) && !errors.Is(err, ca.ErrDenied) {
			t.Errorf("got %v", err)
		}
	})
}
