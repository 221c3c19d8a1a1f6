// Package ratest has what tests of the registration authority share: [CA], an authority in
// memory; [Audit], its log in memory; [Engine] and [CSR].
package ratest

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// CA certifies the names of the request, whatever the CSR. Its fields are set before it
// is used, or by [CA.Set]. Unlike catest's, it can sign under a root that it does not publish.
type CA struct {
	Root  *certtest.Pair // that it began with
	Signs *certtest.Pair // default: Root

	mu       sync.Mutex
	tb       testing.TB
	requests []ca.SignRequest
	issued   int
	changed  chan struct{} // the published roots

	Published []*x509.Certificate
	Backdate  time.Duration
	Unable    error // of CertifiesNames
	Before    func(ctx context.Context, req ca.SignRequest) error
	Change    func(leaf *x509.Certificate, csr *x509.CertificateRequest)
	Known     map[string]ca.Certificate // by ID; nil: repeats are not recognized
}

// NewCA is a root that signs.
func NewCA(tb testing.TB) *CA {
	root := Root(tb, "first")
	return &CA{tb: tb, Root: root, Signs: root, Published: []*x509.Certificate{root.Cert}, changed: make(chan struct{}, 1)}
}

// NewCABelow has an intermediate that signs.
func NewCABelow(tb testing.TB) *CA {
	c := NewCA(tb)
	c.Signs = c.Root.Issue(tb, rootTemplate("issuing"))
	return c
}

// Root is a CA of that name, which ends in 10,000 hours.
func Root(tb testing.TB, name string) *certtest.Pair {
	tb.Helper()
	return certtest.SelfSigned(tb, rootTemplate(name))
}

func rootTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

// Constrain has an intermediate sign that may certify DNS names of one domain alone.
func (c *CA) Constrain(domain string) {
	template := rootTemplate("constrained")
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = []string{domain}, true
	c.Signs = c.Root.Issue(c.tb, template)
}

// Set changes fields while it is in use.
func (c *CA) Set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// Fail has it answer each request with an error; nil: with a certificate.
func (c *CA) Fail(err error) {
	c.Set(func() { c.Before = func(context.Context, ca.SignRequest) error { return err } })
}

// Publish replaces the roots that it publishes, and notifies their watchers.
func (c *CA) Publish(roots ...*x509.Certificate) {
	c.Set(func() { c.Published = roots })
	c.changed <- struct{}{}
}

// Requests are those that it has received.
func (c *CA) Requests() []ca.SignRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Issued counts the certificates.
func (c *CA) Issued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.issued
}

// CertifiesNames implements [ca.NameCertifier].
func (c *CA) CertifiesNames(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Unable
}

// Roots implements [ca.RootSource].
func (c *CA) Roots(context.Context) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pki.EncodeCertificates(c.Published), nil
}

// WatchRoots implements [ca.RootWatcher], for one watcher.
func (c *CA) WatchRoots(ctx context.Context, changed func([]byte) error) error {
	for {
		roots, _ := c.Roots(ctx)
		if err := changed(roots); err != nil {
			return err
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CSRSign implements [ca.Client].
func (c *CA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	c.mu.Lock()
	c.requests = append(c.requests, req)
	before, known := c.Before, c.Known[req.ID]
	c.mu.Unlock()
	if before != nil {
		if err := before(ctx, req); err != nil {
			return ca.Certificate{}, err
		}
	}
	if known.Chain != nil {
		return known, nil
	}
	return c.Sign(req)
}

// Sign signs at once and records only that it did.
func (c *CA) Sign(req ca.SignRequest) (ca.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "%w", err)
	}
	leaf := c.leaf(req)
	if c.Change != nil {
		c.Change(leaf, csr)
	}
	chain := []*x509.Certificate{c.Signs.Sign(c.tb, leaf, csr.PublicKey)}
	if above := c.Signs.Cert; !pki.SelfSigned(above) {
		chain = append(chain, above)
	}
	c.issued++
	reply := ca.Certificate{Chain: pki.EncodeCertificates(chain), Roots: pki.EncodeCertificates(c.Published), Signer: "ratest 1.0"}
	if c.Known != nil {
		c.Known[req.ID] = reply
	}
	return reply, nil
}

func (c *CA) leaf(req ca.SignRequest) *x509.Certificate {
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(int64(c.issued + 100)), NotBefore: time.Now().Add(-c.Backdate), NotAfter: time.Now().Add(req.TTL),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, DNSNames: req.DNSNames,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if u, err := url.Parse(req.SubjectID); err == nil && req.SubjectID != "" {
		leaf.URIs = []*url.URL{u}
	}
	for _, ip := range req.IPAddresses {
		leaf.IPAddresses = append(leaf.IPAddresses, ip.AsSlice())
	}
	return leaf
}

// Certifier is an authority of catest's, made with NamesFromRequest, as a [ca.NameCertifier].
type Certifier struct{ *catest.CA }

// CertifiesNames implements [ca.NameCertifier].
func (Certifier) CertifiesNames(context.Context) error { return nil }
