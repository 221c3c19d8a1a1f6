package rest

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Chain joins the certificates of a reply, PEM with the leaf first, to the chain of a
// [ca.Certificate]: without roots, which do not belong there. Certificates that Go cannot read
// stay: the agent leaves them out and logs why. An error has the reason [ca.Internal].
func (c *Client) Chain(certificates ...string) ([]byte, error) {
	text := []byte(strings.Join(certificates, "\n"))
	certs, unusable, err := pki.UsableCertificates(text)
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "%s returned an invalid chain: %w", c.Host(), err)
	}
	certs = slices.DeleteFunc(certs, pki.SelfSigned)
	switch {
	case len(certs) == 0:
		return nil, ca.Errorf(ca.Internal, "%s returned a root and no leaf", c.Host())
	case len(unusable) > 0:
		return text, nil
	}
	return pki.EncodeCertificates(certs), nil
}
