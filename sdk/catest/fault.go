package catest

import (
	"context"
	"crypto"
	"crypto/x509"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Fault is how one call of CSRSign fails. The zero value succeeds. If several fields
// are set, the delay applies first and the broken reply last.
type Fault struct {
	// Delay is the initial wait. Default: none.
	Delay time.Duration
	// Hang blocks the call until its context ends. Default: false.
	Hang bool
	// Err is returned instead of a certificate. Default: nil.
	Err error
	// Break modifies the certificate before signing: one of this package's functions,
	// [WrongKey] to [OtherAuthority], or your own. Default: nil.
	Break func(*Draft)
}

// Next plans the fault for the next n calls that have none planned.
func (c *CA) Next(n int, fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.planned = append(c.planned, fault)
	}
}

// Always sets the fault for all calls that have none planned; Fault{} clears it.
func (c *CA) Always(fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.always = fault
}

// before applies the faults that precede a certificate.
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

// Draft is an unsigned reply.
type Draft struct {
	Leaf  *x509.Certificate   // the leaf's template
	Key   crypto.PublicKey    // the leaf's key
	Above []*x509.Certificate // certificates after the leaf in the chain
	Root  *x509.Certificate   // the root of the chain
	Roots *pki.Bundle         // the roots in the reply

	issuer issuer // signs the leaf
}

// WrongKey gives the leaf a different key.
func WrongKey(d *Draft) {
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		panic(err)
	}
	d.Key = key.Public()
}

// WrongName gives the leaf a different SPIFFE ID.
func WrongName(d *Draft) {
	d.Leaf.URIs = []*url.URL{{Scheme: "spiffe", Host: "wrong-name.test", Path: "/somebody-else"}}
}

// LeafIsCA makes the leaf a CA certificate.
func LeafIsCA(d *Draft) {
	d.Leaf.IsCA = true
	d.Leaf.KeyUsage |= x509.KeyUsageCertSign
}

// WrongUsage makes the leaf a code signing certificate.
func WrongUsage(d *Draft) {
	d.Leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
}

// Expired makes the leaf expire a second after its start, minutes ago.
func Expired(d *Draft) { d.Leaf.NotAfter = d.Leaf.NotBefore.Add(time.Second) }

// NotYetValid makes the leaf valid only in an hour.
func NotYetValid(d *Draft) {
	d.Leaf.NotBefore = d.Leaf.NotBefore.Add(time.Hour)
	d.Leaf.NotAfter = d.Leaf.NotAfter.Add(time.Hour)
}

// TooLong extends the leaf's lifetime by an hour.
func TooLong(d *Draft) { d.Leaf.NotAfter = d.Leaf.NotAfter.Add(time.Hour) }

// RootInChain appends the root to the chain.
func RootInChain(d *Draft) { d.Above = append(d.Above, d.Root) }

// NoIntermediates omits the intermediates.
func NoIntermediates(d *Draft) { d.Above = nil }

// NoRoots omits the roots.
func NoRoots(d *Draft) { d.Roots = nil }

// OtherAuthority signs the leaf with a CA that chains to none of the roots.
func OtherAuthority(d *Draft) {
	// The leaf's times follow the CA's clock.
	begin := func() time.Time { return d.Leaf.NotBefore }
	d.issuer = newIssuer(Options{Now: begin, CALifetime: defaultCALifetime}, "stranger", nil)
	d.Above = nil
}
