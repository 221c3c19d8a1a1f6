package conformance

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// reply is the provider's answer to a good request, parsed once for all checks that use
// it.
type reply struct {
	req   ca.SignRequest
	key   crypto.PublicKey
	cert  ca.Certificate
	now   time.Time // time of arrival
	chain []*x509.Certificate
	fault error // why there is no chain
}

func (s *Session) firstReply(ctx context.Context) (*reply, error) {
	i, err := s.Ready()
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, i, func(*ca.SignRequest) {})
}

// ask has a good request, modified by change, signed.
func (s *Session) ask(ctx context.Context, client ca.Client, change func(*ca.SignRequest)) (*reply, error) {
	req, key, err := s.good()
	if err != nil {
		return nil, err
	}
	change(&req)
	ctx, cancel := s.call(ctx)
	defer cancel()
	cert, err := client.CSRSign(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("it answers %w", err)
	}
	return newReply(req, key, cert), nil
}

func newReply(req ca.SignRequest, key crypto.PublicKey, cert ca.Certificate) *reply {
	r := &reply{req: req, key: key, cert: cert, now: time.Now()}
	r.chain, r.fault = pki.ParseCertificates(cert.Chain)
	return r
}

func (r *reply) leaf() *x509.Certificate { return r.chain[0] }

// rootsOf returns the roots that verify the reply: its own, or those the provider
// publishes separately.
func (s *Session) rootsOf(ctx context.Context, r *reply) (*pki.Bundle, error) {
	if len(r.cert.Roots) > 0 {
		return pki.ParseBundle(r.cert.Roots)
	}
	i, err := s.having(ctx, wire.RootSource)
	if _, none := errors.AsType[notRunError](err); none {
		return nil, errors.New("the reply has no root, and the provider no ability to return them")
	} else if err != nil {
		return nil, err
	}
	ctx, cancel := s.call(ctx)
	defer cancel()
	text, err := i.Roots(ctx)
	if err != nil {
		return nil, err
	}
	return pki.ParseBundle(text)
}

// verify builds a path from the leaf to one of the roots. Other checks cover times and
// usages.
func (r *reply) verify(roots *pki.Bundle) error {
	between := x509.NewCertPool()
	for _, cert := range r.chain[1:] {
		between.AddCert(cert)
	}
	leaf := r.leaf()
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots.Pool(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		CurrentTime: leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2),
	})
	return err
}
