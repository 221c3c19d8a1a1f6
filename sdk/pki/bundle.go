package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/internal/text"
)

// Bundle is a set of roots that peers are verified with (SPIFFE Trust Domain and Bundle,
// section 4). It is immutable and safe for concurrent use; a nil *Bundle is the empty set.
type Bundle struct {
	certs []*x509.Certificate // sorted by DER, no duplicates
	once  sync.Once
	pool  *x509.CertPool // nobody adds to it
}

// NewBundle returns the set of certs without checking them. It sorts them by DER and
// removes duplicates.
func NewBundle(certs ...*x509.Certificate) *Bundle {
	sorted := slices.Clone(certs)
	slices.SortFunc(sorted, func(a, b *x509.Certificate) int { return bytes.Compare(a.Raw, b.Raw) })
	return &Bundle{certs: slices.CompactFunc(sorted, (*x509.Certificate).Equal)}
}

// ParseBundle parses roots (PEM) as [ParseCertificates] does and checks that each is a
// self-signed CA certificate. It does not check validity times: see [Bundle.Filter] and
// [Check.Chain].
func ParseBundle(pemBytes []byte) (*Bundle, error) {
	roots, unusable, err := UsableBundle(pemBytes)
	if len(unusable) > 0 {
		return nil, unusable[0]
	}
	return roots, err
}

// UsableBundle parses roots as [ParseBundle] does, and leaves out what is of no use as a root:
// unusable lists which ones, and why. A text without a usable root is an error.
func UsableBundle(pemBytes []byte) (roots *Bundle, unusable []error, err error) {
	certs, unusable, err := UsableCertificates(pemBytes)
	if err != nil {
		return nil, unusable, err
	}
	certs = slices.DeleteFunc(certs, func(cert *x509.Certificate) bool {
		reason := rootFault(cert)
		if reason != "" {
			unusable = append(unusable, fmt.Errorf("the root %s (%s) is refused: %s", Fingerprint(cert), text.Clean(cert.Subject.String()), reason))
		}
		return reason != ""
	})
	if len(certs) == 0 {
		return nil, unusable, fmt.Errorf("it holds no root that can be used: %w", unusable[0])
	}
	return NewBundle(certs...), unusable, nil
}

func rootFault(cert *x509.Certificate) string {
	switch {
	case cert.Version == 1:
		return "it is of version 1, without the extension that makes it a CA certificate; issue it with basicConstraints"
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return "not a CA certificate"
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return "its key usage does not allow it to sign certificates"
	case lacking(cert.Raw) != nil:
		return "it " + lacking(cert.Raw).Error()
	case !SelfSigned(cert):
		return "it is not self-signed"
	}
	return ""
}

// SelfSigned reports whether a certificate names itself as its issuer: by its name and, if it has
// them, the identifiers of both keys. Without these, the signature separates it from a certificate
// that a CA issued to another key of its own name; one that Go does not check, such as SHA-1,
// decides nothing. A trust anchor's own signature protects nothing (RFC 5280, section 6.1).
func SelfSigned(cert *x509.Certificate) bool {
	if !bytes.Equal(cert.RawSubject, cert.RawIssuer) {
		return false
	}
	if len(cert.AuthorityKeyId) > 0 && len(cert.SubjectKeyId) > 0 {
		return bytes.Equal(cert.AuthorityKeyId, cert.SubjectKeyId)
	}
	err := cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature)
	_, insecure := errors.AsType[x509.InsecureAlgorithmError](err)
	return err == nil || insecure || errors.Is(err, x509.ErrUnsupportedAlgorithm)
}

// Certificates returns the roots in the bundle's order. The caller owns the slice.
func (b *Bundle) Certificates() []*x509.Certificate {
	if b == nil {
		return nil
	}
	return slices.Clone(b.certs)
}

// Len returns the number of roots.
func (b *Bundle) Len() int {
	if b == nil {
		return 0
	}
	return len(b.certs)
}

// PEM returns the roots as PEM in the bundle's order. The same set gives the same bytes;
// the empty set gives none.
func (b *Bundle) PEM() []byte {
	return EncodeCertificates(b.Certificates())
}

// Contains reports whether cert itself is one of the roots.
func (b *Bundle) Contains(cert *x509.Certificate) bool {
	return slices.ContainsFunc(b.Certificates(), cert.Equal)
}

// Equal reports whether both bundles hold the same roots.
func (b *Bundle) Equal(other *Bundle) bool {
	return slices.EqualFunc(b.Certificates(), other.Certificates(), (*x509.Certificate).Equal)
}

// Union returns the roots of both bundles.
func (b *Bundle) Union(other *Bundle) *Bundle {
	return NewBundle(append(b.Certificates(), other.Certificates()...)...)
}

// Filter returns the roots for which keep returns true.
func (b *Bundle) Filter(keep func(*x509.Certificate) bool) *Bundle {
	return &Bundle{certs: slices.DeleteFunc(b.Certificates(), func(c *x509.Certificate) bool { return !keep(c) })}
}

// Pool returns a new certificate pool with the roots.
func (b *Bundle) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range b.Certificates() {
		pool.AddCert(cert)
	}
	return pool
}

// shared returns the pool that verifications share, as none adds to it.
func (b *Bundle) shared() *x509.CertPool {
	b.once.Do(func() { b.pool = b.Pool() })
	return b.pool
}

// Fingerprints returns the [Fingerprint] of each root, in the bundle's order.
func (b *Bundle) Fingerprints() []string {
	prints := make([]string, b.Len())
	for i, cert := range b.Certificates() {
		prints[i] = Fingerprint(cert)
	}
	return prints
}
