package catest

import (
	"context"
	"crypto"
	"crypto/x509"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Fault is how one call of CSRSign goes wrong. The zero value is a good answer;
// of several fields, the delay comes first and the broken reply last.
type Fault struct {
	// Delay is waited before anything else. Default: none.
	Delay time.Duration
	// Hang keeps the call until its context ends. Default: false.
	Hang bool
	// Err is the answer instead of a certificate. Default: nil.
	Err error
	// Break changes the certificate before it is signed: one of this package's
	// functions, [WrongKey] to [OtherAuthority], or your own. Default: nil.
	Break func(*Draft)
}

// Next plans the fault for the next n calls that nothing is planned for yet.
func (c *CA) Next(n int, fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.planned = append(c.planned, fault)
	}
}

// Always sets the fault of all calls that nothing is planned for; Fault{} ends it.
func (c *CA) Always(fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.always = fault
}

// before does what comes before a certificate.
func (f Fault) before(ctx context.Context) error {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if f.Hang {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return f.Err
}

// Draft is a reply before it is signed.
type Draft struct {
	Leaf  *x509.Certificate   // the template of the leaf
	Key   crypto.PublicKey    // the leaf's key
	Above []*x509.Certificate // what follows the leaf in the chain
	Root  *x509.Certificate   // the root that the chain leads to
	Roots *pki.Bundle         // the roots that the reply tells

	issuer issuer // who signs the leaf
}

// WrongKey puts another key into the leaf.
func WrongKey(d *Draft) {
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		panic(err)
	}
	d.Key = key.Public()
}

// WrongName puts another SPIFFE ID into the leaf.
func WrongName(d *Draft) {
	d.Leaf.URIs = []*url.URL{{Scheme: "spiffe", Host: "wrong-name.test", Path: "/somebody-else"}}
}

// LeafIsCA makes the leaf a CA certificate.
func LeafIsCA(d *Draft) {
	d.Leaf.IsCA = true
	d.Leaf.KeyUsage |= x509.KeyUsageCertSign
}

// WrongUsage makes the leaf a certificate for signing code.
func WrongUsage(d *Draft) {
	d.Leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
}

// Expired lets the leaf end a second after it began, minutes ago.
func Expired(d *Draft) { d.Leaf.NotAfter = d.Leaf.NotBefore.Add(time.Second) }

// NotYetValid lets the leaf begin an hour late.
func NotYetValid(d *Draft) {
	d.Leaf.NotBefore = d.Leaf.NotBefore.Add(time.Hour)
	d.Leaf.NotAfter = d.Leaf.NotAfter.Add(time.Hour)
}

// TooLong lets the leaf live an hour longer than it should.
func TooLong(d *Draft) { d.Leaf.NotAfter = d.Leaf.NotAfter.Add(time.Hour) }

// RootInChain puts the root at the end of the chain.
func RootInChain(d *Draft) { d.Above = append(d.Above, d.Root) }

// NoIntermediates leaves out what stands between leaf and root.
func NoIntermediates(d *Draft) { d.Above = nil }

// NoRoots tells no root.
func NoRoots(d *Draft) { d.Roots = nil }

// OtherAuthority has the leaf signed by a CA that leads to none of the roots.
func OtherAuthority(d *Draft) {
	// The leaf tells the time by the authority's clock.
	begin := func() time.Time { return d.Leaf.NotBefore }
	d.issuer = newIssuer(Options{Now: begin, CALifetime: defaultCALifetime}, "stranger", nil)
	d.Above = nil
}
