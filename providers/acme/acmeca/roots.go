package acmeca

import (
	"context"
	"crypto/x509"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Roots implements [ca.RootSource]: it reads the roots of [Settings.Roots] again. With the roots
// of the system it is [ca.Unimplemented], as each reply contains the one its chain leads to.
func (c *CA) Roots(context.Context) ([]byte, error) {
	if c.settings.system() {
		return nil, ca.Errorf(ca.Unimplemented, "roots is SYSTEM: each reply contains the root that its chain leads to")
	}
	bundle, err := c.settings.Roots.Bundle()
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "roots: %w", err)
	}
	return bundle.PEM(), nil
}

func (s Settings) checkRoots() error {
	if s.system() {
		return nil
	}
	if _, err := s.Roots.Bundle(); err != nil {
		return ca.Errorf(ca.Invalid, "roots: %w", err)
	}
	return nil
}

// reply returns the chain without its root, and the roots.
func (c *CA) reply(chain string) (ca.Certificate, error) {
	certs, err := parsed(chain)
	if err != nil {
		return ca.Certificate{}, err
	}
	anchor, err := c.anchor(certs)
	if err != nil {
		return ca.Certificate{}, err
	}
	reply := ca.Certificate{Chain: pki.EncodeCertificates(certs)}
	if c.settings.system() {
		reply.Roots = pki.NewBundle(anchor).PEM()
		return reply, nil
	}
	reply.Roots, err = c.Roots(context.Background()) // from a file
	return reply, err
}

// parsed returns the certificates of a chain, leaf first, without roots.
func parsed(chain string) ([]*x509.Certificate, error) {
	certs, err := pki.ParseCertificates([]byte(chain))
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "the CA returned an invalid chain: %w", err)
	}
	certs = slices.DeleteFunc(certs, pki.SelfSigned)
	if len(certs) == 0 {
		return nil, ca.Errorf(ca.Internal, "the CA returned a root and no leaf")
	}
	return certs, nil
}

// anchor returns the root that a chain leads to.
func (c *CA) anchor(certs []*x509.Certificate) (*x509.Certificate, error) {
	options := x509.VerifyOptions{Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	options.CurrentTime = c.now()
	if begins := certs[0].NotBefore; begins.After(options.CurrentTime) {
		options.CurrentTime = begins.Add(time.Second) // the host judges how far ahead is too far
	}
	for _, above := range certs[1:] {
		options.Intermediates.AddCert(above)
	}
	if !c.settings.system() {
		bundle, err := c.settings.Roots.Bundle()
		if err != nil {
			return nil, ca.Errorf(ca.Unavailable, "roots: %w", err)
		}
		options.Roots = bundle.Pool()
	}
	ways, err := certs[0].Verify(options)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "roots: the certificate chains to none of %s: set the CA's roots", c.settings.rootsNamed())
	}
	return ways[0][len(ways[0])-1], nil
}

func (s Settings) rootsNamed() string {
	if s.system() {
		return "the operating system's"
	}
	return "them"
}
