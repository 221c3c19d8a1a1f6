package trustbundle

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// look brings the object in line with the authority's roots.
func (k *keeper) look(ctx context.Context) error {
	if roots := k.door.cfg.Roots(k.bundle.Authority); roots.Len() > 0 {
		k.seen = roots
	}
	roots := k.seen
	if roots.Len() == 0 {
		return nil // none were ever known: what is published stays
	}
	want := string(roots.Union(k.bundle.Further).PEM())
	if len(want) > maxSize {
		return fmt.Errorf("the %d roots of authority %q have %d bytes, the API server takes %d: withdraw roots that are not used any more", roots.Len(), k.bundle.Authority, len(want), maxSize)
	}
	found, err := owned.Find(ctx, k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Get, k.name)
	if err != nil {
		return err
	}
	s := owned.Step{Due: want, Write: k.write(found, want)}
	had := pki.NewBundle()
	if found != nil {
		s.Found, s.Right = &found.ObjectMeta, found.Spec.TrustBundle == want
		had = among(roots, found.Spec.TrustBundle)
		if found.Spec.SignerName != k.bundle.Signer {
			s.Unfit = fmt.Errorf("it exists for the signer %.256q, which cannot be changed: delete it", found.Spec.SignerName)
		}
	}
	err = k.loop.Bring(ctx, s)
	// What is restored at once was not lost, unless this run never saw it right: for how long it was
	// wrong is not known.
	if _, good := k.state(); err != nil || good == nil && !s.Right {
		k.confirm(had, good)
	}
	if err == nil {
		k.confirm(roots, roots)
	}
	return err
}

func (k *keeper) confirm(held, good *pki.Bundle) {
	k.set(held, good)
	k.door.confirm(k.bundle.Authority)
}

// among returns which of the roots a text has.
func among(roots *pki.Bundle, text string) *pki.Bundle {
	has, err := pki.ParseBundle([]byte(text))
	if err != nil {
		return pki.NewBundle() // another client emptied it, say
	}
	return roots.Filter(has.Contains)
}

// write creates the object, or updates the one that was found.
func (k *keeper) write(found *certificatesv1.ClusterTrustBundle, want string) owned.Write {
	bundles := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles()
	if found == nil {
		found = &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: k.name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: k.bundle.Signer}}
	}
	next := found.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, owned.ManagedBy, owned.Manager)
	next.Spec.TrustBundle = want
	return func(ctx context.Context) (types.UID, bool, error) {
		if next.UID != "" { // fails with a conflict if it has changed since
			made, err := bundles.Update(ctx, next, metav1.UpdateOptions{FieldManager: owned.Manager})
			return made.UID, made.Spec.TrustBundle == want, err
		}
		made, err := bundles.Create(ctx, next, metav1.CreateOptions{FieldManager: owned.Manager})
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("the API server has no ClusterTrustBundle of certificates.k8s.io/v1, which needs Kubernetes 1.37: %w", err)
		}
		return made.UID, made.Spec.TrustBundle == want, err
	}
}
