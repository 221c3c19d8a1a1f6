package istioca_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// office is a CA with an intermediate. It certifies the names of the request.
type office struct {
	root, issuing *certtest.Pair

	mu     sync.Mutex
	roots  []*x509.Certificate
	fails  func(ctx context.Context) error
	asked  []ca.SignRequest
	serial int64
}

func newOffice(tb testing.TB) *office {
	o := &office{root: certtest.Root(tb)}
	o.issuing = o.root.Issue(tb, &x509.Certificate{
		Subject: pkix.Name{CommonName: "issuing"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SerialNumber: big.NewInt(2),
	})
	o.roots = []*x509.Certificate{o.root.Cert}
	return o
}

func (o *office) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// fail makes it answer each request with an error; nil: with a certificate.
func (o *office) fail(err error) {
	o.set(func() {
		o.fails = func(context.Context) error { return err }
	})
}

func (o *office) requests() []ca.SignRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]ca.SignRequest(nil), o.asked...)
}

// CertifiesNames implements [ca.NameCertifier].
func (o *office) CertifiesNames(context.Context) error { return nil }

// CSRSign implements [ca.Client].
func (o *office) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	o.mu.Lock()
	o.asked = append(o.asked, req)
	fails := o.fails
	o.mu.Unlock()
	if fails != nil {
		if err := fails(ctx); err != nil {
			return ca.Certificate{}, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	name, err := url.Parse(req.SubjectID)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	o.serial++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(100 + o.serial), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(req.TTL),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, URIs: []*url.URL{name}, DNSNames: req.DNSNames,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, o.issuing.Cert, csr.PublicKey, o.issuing.Key)
	if err != nil {
		return ca.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return ca.Certificate{}, err
	}
	return ca.Certificate{
		Chain: pki.EncodeCertificates([]*x509.Certificate{leaf, o.issuing.Cert}), Roots: pki.EncodeCertificates(o.roots), Signer: "office 1.0",
	}, nil
}
