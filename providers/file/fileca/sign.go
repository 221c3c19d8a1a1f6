package fileca

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// backdate is how far the clock of a peer may be behind; istiod's is the same.
	backdate = 2 * time.Minute

	minRSABits, maxRSABits = 2048, 8192
)

// checkRequest returns the CSR of the request and the names of the request, if these may be
// certified. Only the key of the CSR is used: its names may differ from the request's.
func (l limits) checkRequest(req ca.SignRequest) (*x509.CertificateRequest, pki.Identity, error) {
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return nil, pki.Identity{}, ca.Errorf(ca.Invalid, "CSR: %w", err)
	}
	id, err := pki.RequestedIdentity(req.SubjectID, req.DNSNames, req.IPAddresses)
	if err != nil {
		return nil, pki.Identity{}, ca.Errorf(ca.Invalid, "request: %w", err)
	}
	if key, ok := csr.PublicKey.(*rsa.PublicKey); ok && (key.N.BitLen() < minRSABits || key.N.BitLen() > maxRSABits) {
		return nil, pki.Identity{}, ca.Errorf(ca.Invalid, "the CSR's RSA key has %d bits, want %d to %d", key.N.BitLen(), minRSABits, maxRSABits)
	}
	if l.trustDomain != "" && id.SPIFFEID != nil && id.TrustDomain() != l.trustDomain {
		return nil, pki.Identity{}, ca.Errorf(ca.Denied, "%.256q is outside the trust domain %q", id.SPIFFEID.String(), l.trustDomain)
	}
	return csr, id, nil
}

// sign makes the leaf (DER) with the names of id and the key of the CSR. It ignores everything else
// in the CSR.
func (a *authority) sign(csr *x509.CertificateRequest, id pki.Identity, begin, end time.Time) ([]byte, error) {
	keyID := sha256.Sum256(csr.RawSubjectPublicKeyInfo)
	// Without a subject, CreateCertificate marks the alternative names critical; without a
	// serial number, it draws one (RFC 5280, sections 4.2.1.6 and 4.1.2.2).
	template := &x509.Certificate{
		DNSNames: id.DNSNames, NotBefore: begin, NotAfter: end,
		BasicConstraintsValid: true,
		KeyUsage:              keyUsage(csr),
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		SubjectKeyId:          keyID[:20], // as RFC 7093, section 2, without SHA-1
	}
	if id.SPIFFEID != nil {
		template.URIs = []*url.URL{id.SPIFFEID}
	}
	for _, ip := range id.IPAddresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, csr.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return der, nil
}

// keyUsage allows signatures and, with RSA, the key transport of TLS 1.2.
func keyUsage(csr *x509.CertificateRequest) x509.KeyUsage {
	if _, ok := csr.PublicKey.(*rsa.PublicKey); ok {
		return x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	}
	return x509.KeyUsageDigitalSignature
}

// lifetime returns the validity of a leaf signed now.
func (a *authority) lifetime(asked, most time.Duration, now time.Time) (begin, end time.Time, err error) {
	if !now.Before(a.notAfter) {
		return begin, end, ca.Errorf(ca.Unavailable, "the CA %s or a CA above it expired at %s", name(a.cert), stamp(a.notAfter))
	}
	switch {
	case asked < 0, 0 < asked && asked < minTTL:
		return begin, end, ca.Errorf(ca.Invalid, "requested lifetime %s is less than %s", asked, minTTL)
	case asked == 0:
		asked = defaultTTL
	}
	begin, end = now.Add(-backdate), now.Add(min(asked, most))
	if begin.Before(a.notBefore) {
		begin = a.notBefore
	}
	if end.After(a.notAfter) {
		end = a.notAfter
	}
	return begin, end, nil
}
