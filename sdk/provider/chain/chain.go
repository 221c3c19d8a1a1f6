// Package chain (for authors of providers) puts an authority's certificates in order, for
// providers whose authority returns them in a bag: [Certificate] makes the reply to CSRSign,
// [Roots] that to Roots. A bag is PEM, or PKCS #7 with certificates only (RFC 5652, section 5.1;
// RFC 7030) as DER, BER, PEM or bare base64; see [Parse].
//
// The order follows signatures, not names. Everything is bounded: 1 MiB and 64 certificates
// in all bags, and the number of signatures that are checked; keys whose signatures are expensive
// to check are refused before. The package has no state.
package chain

import (
	"crypto/x509"
	"encoding/pem"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Certificate finds the leaf with the key of a CSR (PEM) in one or more bags, the intermediates that lead
// from it to a root, and the roots. Of several leaves with that key it takes the one that ends
// last; of several ways to a root the shortest, as cross-signed certificates make them. Roots
// are the self-signed certificates that the leaf leads to, on any way; without one, the chain
// is the longest way, and Roots is empty. What has nothing to do with the leaf is left out.
//
// An error has the reason [ca.Internal], and [ca.Invalid] if the CSR cannot be read. The host
// verifies the result as any other reply.
func Certificate(csr []byte, bags ...[]byte) (ca.Certificate, error) {
	request, err := pki.ParseCSR(csr)
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	certs, unusable, err := parse(bags...)
	if err != nil {
		return ca.Certificate{}, err
	}
	leaves := slices.DeleteFunc(slices.Clone(certs), func(c *x509.Certificate) bool { return c.IsCA || !pki.SameKey(c.PublicKey, request.PublicKey) })
	if len(leaves) == 0 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "none of the authority's %d certificates has the key of the CSR", len(certs))
	}
	return certificate(leaves[0], certs, unusable)
}

func certificate(leaf *x509.Certificate, certs []*x509.Certificate, unusable [][]byte) (out ca.Certificate, err error) {
	g := graph{certs: certs}
	way, roots, err := g.climb(leaf)
	if err != nil {
		return out, err
	}
	out.Chain = pki.EncodeCertificates(way)
	if len(roots) == 0 { // one of these may be missing on the way
		out.Chain = append(out.Chain, encode(unusable)...)
		return out, nil
	}
	out.Roots = pki.NewBundle(roots...).PEM()
	return out, nil
}

// Roots returns the self-signed CA certificates of a bag in PEM, each once, and after them the
// certificates that Go cannot read: the agent leaves them out and logs why. An error has the
// reason [ca.Internal]; a bag without a root is one.
func Roots(bag []byte) ([]byte, error) {
	certs, unusable, err := parse(bag)
	if err != nil {
		return nil, err
	}
	roots := slices.DeleteFunc(slices.Clone(certs), func(cert *x509.Certificate) bool { return !isRoot(cert) })
	if len(roots) == 0 {
		return nil, ca.Errorf(ca.Internal, "none of the authority's %d certificates is a root", len(certs))
	}
	return append(pki.NewBundle(roots...).PEM(), encode(unusable)...), nil
}

func isRoot(cert *x509.Certificate) bool { return cert.IsCA && pki.SelfSigned(cert) }

func encode(ders [][]byte) (text []byte) {
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return text
}
