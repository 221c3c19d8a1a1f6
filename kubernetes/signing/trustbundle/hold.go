package trustbundle

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"time"

	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Hold returns an issuer that gives out a certificate only once its root is in the bundle of the
// request's signer in this cluster. The engine holds back what is signed below a new root; the
// roots that it learns first, with the first certificate perhaps, it trusts at once.
//
// While a bundle cannot be written at all, next is not asked, as that would cost certificates. A
// signer without a bundle, or with that of another authority, is not held up.
func (d *Door) Hold(next ra.Issuer) ra.Issuer {
	h := holder{next, map[string]*keeper{}}
	for _, k := range d.keepers {
		if k.foreign != "" {
			continue
		}
		h.doors[signing.PodDoor(k.bundle.Signer).Name] = k
		h.doors[signing.CSRDoor(k.bundle.Signer).Name] = k
	}
	return h
}

type holder struct {
	ra.Issuer
	doors map[string]*keeper
}

// Issue implements [ra.Issuer].
func (h holder) Issue(ctx context.Context, o *ra.Order) (ra.Certificate, error) {
	k := h.doors[o.Door]
	if k == nil {
		return h.Issuer.Issue(ctx, o)
	}
	if _, good := k.state(); good == nil && k.door.cfg.Roots(k.bundle.Authority).Len() > 0 {
		return ra.Certificate{}, k.unpublished(cmp.Or(k.loop.Err(), owned.ErrNotWritten))
	}
	cert, err := h.Issuer.Issue(ctx, o)
	if err != nil || cert.Authority != k.bundle.Authority {
		return cert, err
	}
	if err := k.await(ctx, cert.Chain); err != nil {
		o.Withhold(ctx, cert, err)
		return ra.Certificate{}, err
	}
	return cert, nil
}

func (k *keeper) unpublished(err error) error {
	out := ca.Errorf(ca.Unavailable, "ClusterTrustBundle %q lacks the certificate's root: %w", k.name, err)
	out.RetryAfter = 10 * time.Second // thousands may be waiting
	return out
}

// await returns once the object holds the root of a chain, or has held it: pods have it then, and their
// certificates must not end because another client has since removed it. The engine calls Changed for
// new roots.
func (k *keeper) await(ctx context.Context, chain []byte) error {
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return k.unpublished(err)
	}
	for {
		moved := k.moves()
		if _, good := k.state(); below(good, certs[len(certs)-1]) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return k.unpublished(ctx.Err())
		}
	}
}

// below reports whether one of the roots has signed the certificate.
func below(roots *pki.Bundle, cert *x509.Certificate) bool {
	return roots.Filter(func(root *x509.Certificate) bool {
		return bytes.Equal(root.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(root) == nil
	}).Len() > 0
}
