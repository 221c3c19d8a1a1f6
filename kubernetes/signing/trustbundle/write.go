package trustbundle

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// keep brings the object in line with the authority's roots. It reports whether that undid what
// somebody else did.
func (k *keeper) keep(ctx context.Context) (repaired bool, err error) {
	roots := k.roots()
	if roots.Len() == 0 {
		return false, nil // nobody knows them: what is published stays
	}
	want := string(roots.Union(k.bundle.Further).PEM())
	if len(want) > maxSize {
		return false, fmt.Errorf("the %d roots of authority %q have %d bytes, the API server takes %d: withdraw roots that are not used any more", roots.Len(), k.bundle.Authority, len(want), maxSize)
	}
	lacked, err := k.write(ctx, roots, want)
	if lacked != nil && (err != nil || k.wrote == "") {
		k.lose(lacked)
	}
	if err != nil {
		return false, err
	}
	repaired = lacked != nil && k.wrote == want
	k.wrote = want
	k.set(roots, nil)
	k.door.confirm(k.bundle.Authority)
	return repaired, nil
}

// roots returns what to publish: the last roots that were known, if none are now.
func (k *keeper) roots() *pki.Bundle {
	if roots := k.door.cfg.Roots(k.bundle.Authority); roots.Len() > 0 {
		k.seen = roots
	}
	return k.seen
}

// lose takes back what was said about the roots that the object has. What is put right at once
// is not lost, unless this run never saw it right: nobody knows for how long it was wrong.
func (k *keeper) lose(has *pki.Bundle) {
	k.set(has, owned.ErrNotWritten)
	k.door.confirm(k.bundle.Authority)
}

// write creates or updates the object where that is needed. If it is, it returns which of the roots
// the object had, even if that fails.
func (k *keeper) write(ctx context.Context, roots *pki.Bundle, want string) (had *pki.Bundle, err error) {
	found, err := k.get(ctx)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return pki.NewBundle(), k.create(ctx, want)
	}
	had = among(roots, found.Spec.TrustBundle)
	if err := k.owned(found); err != nil {
		return had, err
	}
	k.claim.Took(found.UID)
	if found.Spec.TrustBundle == want && owned.Labelled(found.Labels) {
		return nil, nil
	}
	return had, k.update(ctx, found.DeepCopy(), want)
}

// among returns which of the roots a text has.
func among(roots *pki.Bundle, text string) *pki.Bundle {
	has, err := pki.ParseBundle([]byte(text))
	if err != nil {
		return pki.NewBundle() // somebody emptied it, say
	}
	return roots.Filter(has.Contains)
}

// get returns the object as it is now, or nil if there is none.
func (k *keeper) get(ctx context.Context) (*certificatesv1.ClusterTrustBundle, error) {
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	found, err := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// owned returns an error if the object is not ours to change. One that we have written is,
// whatever became of its labels.
func (k *keeper) owned(found *certificatesv1.ClusterTrustBundle) error {
	switch {
	case found.Spec.SignerName != k.bundle.Signer:
		return fmt.Errorf("it exists for the signer %.256q, which cannot be changed: delete it", found.Spec.SignerName)
	case k.bundle.Adopt, k.claim.Owns(found.UID, owned.Labelled(found.Labels)):
		return nil
	}
	return fmt.Errorf("it exists and is not ours: delete it, or hand it over with the label %s=%s", owned.ManagedBy, owned.Manager)
}

func (k *keeper) create(ctx context.Context, want string) error {
	if err := k.door.cfg.Held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	bundle := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{owned.ManagedBy: owned.Manager}},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: k.bundle.Signer, TrustBundle: want},
	}
	made, err := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Create(ctx, bundle, metav1.CreateOptions{FieldManager: owned.Manager})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server has no ClusterTrustBundle of certificates.k8s.io/v1, which needs Kubernetes 1.37: %w", err)
	}
	return k.stored(made, err, want)
}

// update fails with a conflict if the object is not as it was found.
func (k *keeper) update(ctx context.Context, bundle *certificatesv1.ClusterTrustBundle, want string) error {
	if err := k.door.cfg.Held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	if bundle.Labels == nil {
		bundle.Labels = map[string]string{}
	}
	bundle.Labels[owned.ManagedBy] = owned.Manager
	bundle.Spec.TrustBundle = want
	made, err := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Update(ctx, bundle, metav1.UpdateOptions{FieldManager: owned.Manager})
	return k.stored(made, err, want)
}

// stored checks what became of a write.
func (k *keeper) stored(made *certificatesv1.ClusterTrustBundle, err error, want string) error {
	switch {
	case err != nil:
		return err
	case made.Spec.TrustBundle != want:
		return owned.ErrAltered
	}
	k.claim.Took(made.UID)
	return nil
}
