package citadelca

import (
	"crypto/x509"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// certificateOf reads istiod's reply: PEM elements, the leaf in the first and the roots in the
// last. Each may hold several certificates. The host verifies the leaf.
func certificateOf(elements []string) (ca.Certificate, error) {
	if len(elements) < 2 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "the reply's cert_chain has %d elements, want at least two: the leaf first and its roots last", len(elements))
	}
	last := len(elements) - 1
	roots, unusable, err := pki.UsableBundle([]byte(elements[last]))
	if err != nil {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "the last element of the reply's cert_chain has no roots: %w", err)
	}
	var chain []*x509.Certificate
	for i, element := range elements[:last] {
		certs, err := pki.ParseCertificates([]byte(element))
		if err != nil {
			return ca.Certificate{}, ca.Errorf(ca.Internal, "element %d of %d of the reply's cert_chain: %w", i+1, len(elements), err)
		}
		chain = append(chain, certs...)
	}
	// By Istio's documentation, the cert-chain.pem of a plugged-in CA ends with the root.
	chain = slices.DeleteFunc(chain, roots.Contains)
	if len(chain) == 0 {
		return ca.Certificate{}, ca.Errorf(ca.Internal, "the reply's cert_chain has roots and no leaf")
	}
	reply := ca.Certificate{Chain: pki.EncodeCertificates(chain), Roots: roots.PEM()}
	if len(unusable) > 0 {
		reply.Roots = []byte(elements[last]) // the agent leaves them out and logs why
	}
	return reply, nil
}
