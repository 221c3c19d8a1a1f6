package trustbundle

import (
	"context"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// keep brings the object in line with the authority's roots. It reports whether that undid what
// somebody else did.
func (k *keeper) keep(ctx context.Context) (repaired bool, err error) {
	roots := k.roots()
	if roots.Len() == 0 {
		return false, nil // nobody knows them: what is published stays
	}
	want := string(roots.PEM())
	if len(want) > maxSize {
		return false, fmt.Errorf("the %d roots of authority %q have %d bytes, the API server takes %d: withdraw roots that are not used any more", roots.Len(), k.bundle.Authority, len(want), maxSize)
	}
	wrote, err := k.write(ctx, want)
	if err != nil {
		return false, err
	}
	repaired = wrote && k.wrote == want
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

// write creates or updates the object where that is needed.
func (k *keeper) write(ctx context.Context, want string) (wrote bool, err error) {
	found, err := k.get(ctx)
	switch {
	case err != nil:
		return false, err
	case found == nil:
		return true, k.create(ctx, want)
	}
	if err := k.owned(found); err != nil {
		return false, err
	}
	k.uid = string(found.UID)
	if found.Spec.TrustBundle == want && found.Labels[ManagedBy] == Manager {
		return false, nil
	}
	return true, k.update(ctx, found.DeepCopy(), want)
}

// get returns the object as it is now, or nil if there is none.
func (k *keeper) get(ctx context.Context) (*certificatesv1.ClusterTrustBundle, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
	case found.Labels[ManagedBy] == Manager, k.bundle.Adopt, k.uid != "" && k.uid == string(found.UID):
		return nil
	}
	return fmt.Errorf("it exists and is not ours: delete it, or hand it over with the label %s=%s", ManagedBy, Manager)
}

func (k *keeper) create(ctx context.Context, want string) error {
	if err := k.door.cfg.Held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	bundle := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{ManagedBy: Manager}},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: k.bundle.Signer, TrustBundle: want},
	}
	made, err := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Create(ctx, bundle, metav1.CreateOptions{FieldManager: Manager})
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
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if bundle.Labels == nil {
		bundle.Labels = map[string]string{}
	}
	bundle.Labels[ManagedBy] = Manager
	bundle.Spec.TrustBundle = want
	made, err := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Update(ctx, bundle, metav1.UpdateOptions{FieldManager: Manager})
	return k.stored(made, err, want)
}

// stored checks what became of a write.
func (k *keeper) stored(made *certificatesv1.ClusterTrustBundle, err error, want string) error {
	switch {
	case err != nil:
		return err
	case made.Spec.TrustBundle != want:
		return errors.New("the API server stored other roots than were written: does an admission webhook change them?")
	}
	k.uid = string(made.UID)
	return nil
}

// callTimeout limits each call to the API server.
const callTimeout = 10 * time.Second
