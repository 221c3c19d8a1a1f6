package catest

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// issuer is a CA certificate with its key.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newIssuer(opts Options, name string, parent *issuer) issuer {
	key, err := pki.GenerateKey(opts.KeyType)
	if err != nil {
		panic(err)
	}
	begin := opts.Now().Add(-time.Hour)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "catest " + name}, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: begin, NotAfter: begin.Add(opts.CALifetime),
	}
	if parent == nil {
		parent = &issuer{template, key}
	}
	return issuer{parent.issue(template, key.Public()), key}
}

// issue signs the template with a random serial number.
func (i issuer) issue(template *x509.Certificate, key crypto.PublicKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, key, i.key)
	if err != nil {
		panic(err)
	}
	cert, err := pki.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert
}

func leafTemplate(csr *x509.CertificateRequest, now time.Time, ttl time.Duration) *x509.Certificate {
	return &x509.Certificate{
		URIs: csr.URIs, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   now.Add(-2 * time.Minute), NotAfter: now.Add(ttl),
	}
}

// takeNames puts the names of the request in the place of the CSR's.
func takeNames(csr *x509.CertificateRequest, req ca.SignRequest) error {
	id, err := pki.RequestedIdentity(req.SubjectID, req.DNSNames, req.IPAddresses)
	if err != nil {
		return err
	}
	csr.URIs, csr.DNSNames, csr.IPAddresses = nil, id.DNSNames, nil
	if id.SPIFFEID != nil {
		csr.URIs = []*url.URL{id.SPIFFEID}
	}
	for _, ip := range id.IPAddresses {
		csr.IPAddresses = append(csr.IPAddresses, net.IP(ip.AsSlice()))
	}
	return nil
}

// IstioFiles returns the CA in Istio's file layout, keyed by name: ca-cert.pem,
// ca-key.pem (PKCS #8), cert-chain.pem (the signing CA and its issuers without the
// root; empty if the root signs) and root-cert.pem.
func (c *CA) IstioFiles() map[string][]byte {
	c.mu.Lock()
	issuers, roots := c.issuers, c.roots
	c.mu.Unlock()
	signer := issuers[len(issuers)-1]
	key, err := pki.EncodeKey(signer.key)
	if err != nil {
		panic(err)
	}
	return map[string][]byte{
		"ca-cert.pem":    pki.EncodeCertificates([]*x509.Certificate{signer.cert}),
		"ca-key.pem":     key,
		"cert-chain.pem": pki.EncodeCertificates(upwards(issuers)),
		"root-cert.pem":  roots.PEM(),
	}
}

// upwards returns the intermediates, the leaf-signing one first.
func upwards(issuers []issuer) []*x509.Certificate {
	var certs []*x509.Certificate
	for i := len(issuers) - 1; i > 0; i-- {
		certs = append(certs, issuers[i].cert)
	}
	return certs
}
