package rest

import (
	"crypto/x509"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Chain joins the certificates of a reply, PEM with the leaf first, to the chain of a
// [ca.Certificate]: without roots, which do not belong there. An error has the reason
// [ca.Internal].
func (c *Client) Chain(certificates ...string) ([]byte, error) {
	certs, err := pki.ParseCertificates([]byte(strings.Join(certificates, "\n")))
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%s returned an invalid chain: %w", c.Host(), err)
	}
	certs = slices.DeleteFunc(certs, SelfSigned)
	if len(certs) == 0 {
		return nil, ca.Errorf(ca.Internal, "%s returned a root and no leaf", c.Host())
	}
	return pki.EncodeCertificates(certs), nil
}

// SelfSigned reports whether cert is a root.
func SelfSigned(cert *x509.Certificate) bool {
	return cert.IsCA && cert.CheckSignatureFrom(cert) == nil
}
