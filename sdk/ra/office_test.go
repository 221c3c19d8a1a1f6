package ra_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// office is a CA in memory that certifies the names of the request, whatever the CSR says.
// Its fields are set before it is used, or under its lock.
type office struct {
	tb testing.TB

	mu       sync.Mutex
	signs    *certtest.Pair // the root that signs
	roots    []*x509.Certificate
	backdate time.Duration
	unable   error // of CertifiesNames
	before   func(ctx context.Context, req ca.SignRequest) error
	change   func(leaf *x509.Certificate, csr *x509.CertificateRequest)
	requests []ca.SignRequest
	issued   int
	known    map[string]ca.Certificate // by ID; nil: repeats are not recognized
	told     chan struct{}             // the roots changed
}

func newOffice(tb testing.TB) *office {
	root := certtest.SelfSigned(tb, rootTemplate("first"))
	return &office{tb: tb, signs: root, roots: []*x509.Certificate{root.Cert}, told: make(chan struct{}, 1)}
}

func rootTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

func (o *office) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *office) CertifiesNames(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unable
}

func (o *office) Roots(context.Context) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return pki.EncodeCertificates(o.roots), nil
}

func (o *office) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	for {
		roots, _ := o.Roots(ctx)
		if err := changed(roots); err != nil {
			return err
		}
		select {
		case <-o.told:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell replaces the roots that it tells.
func (o *office) tell(roots ...*x509.Certificate) {
	o.set(func() { o.roots = roots })
	o.told <- struct{}{}
}

func (o *office) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	o.mu.Lock()
	o.requests = append(o.requests, req)
	before, known := o.before, o.known[req.ID]
	o.mu.Unlock()
	if before != nil {
		if err := before(ctx, req); err != nil {
			return ca.Certificate{}, err
		}
	}
	if known.Chain != nil {
		return known, nil
	}
	return o.sign(req)
}

func (o *office) sign(req ca.SignRequest) (ca.Certificate, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(int64(o.issued + 100)), NotBefore: time.Now().Add(-o.backdate), NotAfter: time.Now().Add(req.TTL),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, DNSNames: req.DNSNames,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if u, err := url.Parse(req.SubjectID); err == nil && req.SubjectID != "" {
		leaf.URIs = []*url.URL{u}
	}
	for _, ip := range req.IPAddresses {
		leaf.IPAddresses = append(leaf.IPAddresses, ip.AsSlice())
	}
	if o.change != nil {
		o.change(leaf, csr)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, o.signs.Cert, csr.PublicKey, o.signs.Key)
	if err != nil {
		return ca.Certificate{}, err
	}
	o.issued++
	reply := ca.Certificate{
		Chain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Roots: pki.EncodeCertificates(o.roots), Signer: "office 1.0",
	}
	if o.known != nil {
		o.known[req.ID] = reply
	}
	return reply, nil
}

func (o *office) calls() []ca.SignRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

func (o *office) certificates() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.issued
}
