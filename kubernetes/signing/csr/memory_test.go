package csr

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// hangs is a CA that does not answer.
type hangs struct{}

func (hangs) CSRSign(ctx context.Context, _ ca.SignRequest) (ca.Certificate, error) {
	<-ctx.Done()
	return ca.Certificate{}, ctx.Err()
}

// BenchmarkWaitingRequests measures the memory of 10,000 requests of 1 MiB each that wait for a CA, each of
// another requester: with a CSR of the usual size, and with the longest.
func BenchmarkWaitingRequests(b *testing.B) {
	for name, padding := range map[string]int{"usual": 0, "longest": 23 << 10} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				waiting(b, 10000, padding)
			}
		})
	}
}

func waiting(b *testing.B, requests, padding int) {
	live := template(b, padding)
	api := kubetest.NewFake()
	api.Before = func(c *kubetest.Call) error {
		if c.Verb == "get" {
			next := *live
			next.Name, next.UID, next.Spec.Username = c.Name, types.UID(c.Name), "user of "+c.Name
			c.Reply = &next
		}
		return nil
	}
	quiet := slog.New(slog.DiscardHandler)
	engine := ratest.Engine(b, ra.Config{
		Policy: ratest.Policy(b, ra.Rule{Name: "users", Authority: "ca", Match: ra.Match{Kinds: []ra.Kind{ra.User}}, Usages: ra.Both, Names: ra.Names{DNSNames: []string{"all.example.org"}}}),
		Audit:  &ratest.Audit{}, Log: quiet, Doors: []ra.Door{signing.CSRDoor("example.com/a")},
		Authorities: []ra.Authority{{Name: "ca", Client: hangs{}}},
	})
	defer engine.Close()
	door, err := New(Config{Config: signing.Config{Cluster: "home", Issuer: engine, Log: quiet}, Client: api.Client(), Signers: []Signer{{Name: "example.com/a"}}})
	if err != nil {
		b.Fatal(err)
	}
	before := heap()
	work := signing.NewWork(b.Context(), signing.MaxHandled, door.handle)
	defer work.Close()
	feed := signing.Feed(work, door.open, owner)
	for n := range requests {
		r := *live
		r.Name = fmt.Sprint("req-", n)
		r.UID, r.Spec.Username = types.UID(r.Name), "user of "+r.Name
		feed.OnAdd(trimmed(&r), false)
	}
	waits := 0
	for same := 0; same < 5; { // seconds without another one
		time.Sleep(time.Second)
		status := engine.Status()[0]
		if now := status.Waiting + status.InFlight; now == 0 || now != waits {
			waits, same = now, 0
		}
		same++
	}
	b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
	b.ReportMetric(float64(waits), "waiting")
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func template(b *testing.B, padding int) *request {
	b.Helper()
	names := &x509.CertificateRequest{DNSNames: []string{"all.example.org"}}
	if padding > 0 { // a password, which is in no certificate
		//nolint:staticcheck // ExtraExtensions would be refused
		names.Attributes = []pkix.AttributeTypeAndValueSET{{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}, Value: [][]pkix.AttributeTypeAndValue{{{
			Type: asn1.ObjectIdentifier{1, 2, 3}, Value: strings.Repeat("x", padding),
		}}}}}
	}
	return &request{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now(), Annotations: map[string]string{"a": strings.Repeat("x", 1<<20-padding)}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: "example.com/a", Request: ratest.CSR(pki.ECDSAP256, names), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth},
			Groups: []string{"system:authenticated"},
		},
		Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "a"}}},
	}
}
