package istiodtls

import (
	"context"

	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// authority is the engine as package secret sees a CA.
type authority struct{ *Keeper }

var (
	_ ca.Client     = authority{}
	_ ca.RootSource = authority{}
)

// CSRSign implements [ca.Client].
func (a authority) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	cert, err := ra.Certify(ctx, a.cfg.Issuer, ra.Request{
		Door: istiod.Door, Subject: istiod.Subject(a.cfg.Cluster, a.cfg.Namespace), CSR: req.CSR, TTL: req.TTL,
	})
	if err != nil {
		return ca.Certificate{}, err
	}
	return ca.Certificate{Chain: cert.Chain, Roots: cert.Roots.PEM(), Signer: cert.Authority}, nil
}

// Roots implements [ca.RootSource]. Some authorities send their roots only with certificates: until
// the first, there are none.
func (a authority) Roots(context.Context) ([]byte, error) {
	if roots := a.cfg.Roots(a.cfg.Authority); roots.Len() > 0 {
		return roots.PEM(), nil
	}
	return nil, ca.ErrUnimplemented
}
