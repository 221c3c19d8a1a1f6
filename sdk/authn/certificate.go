package authn

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const maxChain = 10

// Certificates identifies callers by the client certificate of the TLS handshake, an
// X509-SVID, verified only with the roots of its own trust domain.
type Certificates struct {
	// Roots returns the current roots of a trust domain; nil or empty if the domain is
	// unknown. It must not block. Required.
	Roots func(trustDomain string) *pki.Bundle
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
}

// Authenticate verifies the chain. The identity expires with the leaf.
func (a Certificates) Authenticate(_ context.Context, c Credential) (Identity, error) {
	if len(c.Chain) == 0 {
		return Identity{}, ErrNotMine
	}
	if len(c.Chain) > maxChain {
		return Identity{}, Errorf(ErrRefused, "the chain has %d certificates, %d are allowed", len(c.Chain), maxChain)
	}
	leaf := c.Chain[0]
	if fault := leafFault(leaf); fault != "" {
		return Identity{}, Errorf(ErrRefused, "%s", fault)
	}
	// One URI means one trust domain and thus one set of roots: with two, the roots of
	// one domain could vouch for a name in another.
	if len(leaf.URIs) != 1 {
		return Identity{}, Errorf(ErrRefused, "the certificate has %d URI names, must have exactly one, a SPIFFE ID", len(leaf.URIs))
	}
	id, err := OfSPIFFEID(leaf.URIs[0].String())
	if err != nil {
		return Identity{}, Errorf(ErrRefused, "the certificate's %w", err)
	}
	id.Kind, id.Issuer, id.Expiry = ByCertificate, leaf.URIs[0].Host, leaf.NotAfter
	if err := a.verify(c.Chain, id.Issuer); err != nil {
		return Identity{}, Errorf(ErrRefused, "the certificate of %s: %w", id, err)
	}
	return id, nil
}

// leafFault returns why a leaf is not an X509-SVID (X509-SVID standard, section 4).
func leafFault(leaf *x509.Certificate) string {
	switch {
	case leaf.IsCA, leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return "the client certificate is a CA certificate"
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return "the client certificate's key usage lacks digital signature"
	}
	return ""
}

func (a Certificates) verify(chain []*x509.Certificate, trustDomain string) error {
	roots := a.Roots(trustDomain)
	if roots.Len() == 0 {
		return errors.New("unknown trust domain")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         roots.Pool(),
		Intermediates: pki.NewBundle(below(roots.Certificates(), chain[1:])...).Pool(),
		CurrentTime:   a.now(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return pki.Explain(err, chain[0], slices.Concat(chain[1:], roots.Certificates())...)
}

// below returns the certificates that roots vouch for. Signatures are verified from the roots down, with
// keys that are vouched for alone: a stranger's large keys, and chains in which each certificate may
// have issued each other, would cost more than the handshake did.
func below(roots, candidates []*x509.Certificate) (all []*x509.Certificate) {
	for issuers := roots; len(issuers) > 0; {
		var next []*x509.Certificate
		for _, cert := range candidates {
			if !slices.Contains(all, cert) && isIssued(cert, issuers) {
				next = append(next, cert)
				all = append(all, cert)
			}
		}
		issuers = next
	}
	return all
}

func isIssued(cert *x509.Certificate, issuers []*x509.Certificate) bool {
	return slices.ContainsFunc(issuers, func(issuer *x509.Certificate) bool {
		return bytes.Equal(issuer.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(issuer) == nil
	})
}

func (a Certificates) now() time.Time {
	if a.Now == nil {
		return clock.Wall()
	}
	return a.Now()
}
