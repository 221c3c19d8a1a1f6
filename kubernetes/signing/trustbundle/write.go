package trustbundle

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// look brings the object in line with the authority's roots.
func (k *keeper) look(ctx context.Context) error {
	first, current := k.roots()
	if current && first.Len() > 0 {
		k.seen = first
	}
	if k.seen.Len() == 0 && k.foreign == "" {
		return nil // none were ever known: what is published stays
	}
	found, err := owned.Find(ctx, k.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Get, k.name)
	if err != nil {
		return err
	}
	if k.seen.Len() == 0 {
		k.seen = k.left(found)
	}
	if k.seen.Len() == 0 {
		k.seen = first
	}
	roots := k.seen
	if roots.Len() == 0 {
		return nil
	}
	want := string(roots.Union(k.bundle.Further).PEM())
	if len(want) > maxSize {
		return fmt.Errorf("the %d roots of %s have %d bytes, the API server takes %d: withdraw roots that are not used any more", roots.Len(), k.authority(), len(want), maxSize)
	}
	s := owned.Step{Due: want, Write: k.write(found, want)}
	had := pki.NewBundle()
	if found != nil {
		s.Found, s.Right = &found.ObjectMeta, found.Spec.TrustBundle == want && k.labelled(found.Labels)
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

// left returns the roots that a former leader has verified and written for a foreign trust domain, an empty
// set if there are none. They stay while its endpoint is away, by the labels that are configured now.
func (k *keeper) left(found *certificatesv1.ClusterTrustBundle) *pki.Bundle {
	if found == nil || found.Spec.SignerName != k.bundle.Signer || !owned.Labelled(found.Labels) {
		return nil
	}
	return parse(found.Spec.TrustBundle)
}

// parse returns the trust anchors in the content of an object, which another client may have changed.
// Those of a foreign trust domain need not be self-signed.
func parse(text string) *pki.Bundle {
	certs, _, _ := pki.UsableCertificates([]byte(text))
	return pki.NewBundle(certs...).Filter(func(c *x509.Certificate) bool { return c.IsCA })
}

func (k *keeper) confirm(held, good *pki.Bundle) {
	k.set(held, good)
	if k.foreign != "" {
		return // no certificate waits for it
	}
	k.door.confirm(k.bundle.Authority)
}

// among returns which of the roots a text has.
func among(roots *pki.Bundle, text string) *pki.Bundle { return roots.Filter(parse(text).Contains) }

// write creates the object, or updates the one that was found.
func (k *keeper) write(found *certificatesv1.ClusterTrustBundle, want string) owned.Write {
	bundles := k.door.cfg.Client.CertificatesV1().ClusterTrustBundles()
	if found == nil {
		found = &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: k.name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: k.bundle.Signer}}
	}
	next := found.DeepCopy()
	next.Labels = k.labels(next.Labels)
	next.Spec.TrustBundle = want
	return func(ctx context.Context) (types.UID, bool, error) {
		if next.UID != "" { // fails with a conflict if it has changed since
			made, err := bundles.Update(ctx, next, metav1.UpdateOptions{FieldManager: owned.Manager})
			return made.UID, made.Spec.TrustBundle == want && k.labelled(made.Labels), err
		}
		made, err := bundles.Create(ctx, next, metav1.CreateOptions{FieldManager: owned.Manager})
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("the API server has no ClusterTrustBundle of certificates.k8s.io/v1, which needs Kubernetes 1.37: %w", err)
		}
		return made.UID, made.Spec.TrustBundle == want && k.labelled(made.Labels), err
	}
}

// spiffeLabels is the prefix of the labels by which pods select a bundle (SPIFFE Filesystem Delivery,
// section on Kubernetes). One that is no longer configured would still select it, so it goes.
const spiffeLabels = "k8s.spiffe.io/"

// labels returns the labels of the object, which had some before.
func (k *keeper) labels(had map[string]string) map[string]string {
	next := map[string]string{}
	for name, value := range had {
		if !strings.HasPrefix(name, spiffeLabels) {
			next[name] = value
		}
	}
	maps.Copy(next, k.bundle.Labels)
	next[owned.ManagedBy] = owned.Manager
	return next
}

// labelled reports whether an object has its labels. The label of its manager is for [owned.Loop].
func (k *keeper) labelled(has map[string]string) bool {
	for name, value := range k.bundle.Labels {
		if has[name] != value {
			return false
		}
	}
	for name := range has {
		if _, ok := k.bundle.Labels[name]; strings.HasPrefix(name, spiffeLabels) && !ok {
			return false
		}
	}
	return true
}
