package trustbundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The labels by which a pod's volume selects the bundle of one trust domain (SPIFFE Filesystem
// Delivery, appendix B). WorkloadLabel has the trust domain of the pods, PeerLabel that of the roots.
const (
	WorkloadLabel = spiffeLabels + "workload-trust-domain"
	PeerLabel     = spiffeLabels + "peer-trust-domain"
)

// MaxFederated is how many foreign trust domains a signer has at most.
const MaxFederated = 100

// Federated are foreign trust domains. The roots of each are in an object of its own, which has the
// labels of the signer's bundle but for [PeerLabel]: roots of several trust domains are never merged.
type Federated struct {
	TrustDomains []string
	// Roots returns the verified roots of one of them, from memory, and whether they are what the
	// trust domain publishes now. Others, such as those to begin with, count only where no leader has
	// written any, and none of them change nothing. A trust domain that publishes none has revoked all:
	// its object has a certificate then that verifies no other. Required.
	Roots func(trustDomain string) (roots *pki.Bundle, current bool)
}

// publishes returns the roots for the object of a trust domain.
func (f Federated) publishes(trustDomain string) (roots *pki.Bundle, current bool) {
	if roots, current = f.Roots(trustDomain); current && roots.Len() == 0 {
		roots = revoked()
	}
	return roots, current
}

// FederatedName returns the name of a foreign trust domain's object beside that of a signer's bundle.
func FederatedName(bundle, trustDomain string) string { return bundle + "." + trustDomain }

// CheckFederated returns why a foreign trust domain cannot have an object: its name is part of that of
// the object, and the value of a label.
func CheckFederated(trustDomain string) error {
	if err := pki.CheckTrustDomain(trustDomain); err != nil {
		return err
	}
	if len(content.IsDNS1123Subdomain(trustDomain)) > 0 || len(content.IsLabelValue(trustDomain)) > 0 {
		return errors.New("a ClusterTrustBundle cannot be named after it: only 1 to 63 of a-z, 0-9, '-' and '.' are possible")
	}
	return nil
}

func (b Bundle) checkFederated() error {
	f := b.Federated
	switch {
	case len(f.TrustDomains) == 0:
		return nil
	case f.Roots == nil:
		return fmt.Errorf("the bundle of signer %q is federated without Federated.Roots", b.Signer)
	case len(f.TrustDomains) > MaxFederated:
		return fmt.Errorf("the bundle of signer %q is federated with %d trust domains, and %d are possible", b.Signer, len(f.TrustDomains), MaxFederated)
	case b.Labels[WorkloadLabel] == "" || b.Labels[PeerLabel] != b.Labels[WorkloadLabel]:
		return fmt.Errorf("the bundle of signer %q needs its own trust domain in the labels %s and %s", b.Signer, WorkloadLabel, PeerLabel)
	}
	seen := map[string]bool{b.Labels[WorkloadLabel]: true}
	for _, domain := range f.TrustDomains {
		if err := CheckFederated(domain); err != nil {
			return fmt.Errorf("trust domain %.256q: %w", domain, err)
		}
		if seen[domain] {
			return fmt.Errorf("trust domain %q is there twice", domain)
		}
		seen[domain] = true
	}
	return nil
}

// of returns the bundle of a foreign trust domain.
func (f Federated) of(domain string, own Bundle) Bundle {
	b := Bundle{Signer: own.Signer, Name: FederatedName(own.Name, domain), Adopt: own.Adopt, Labels: maps.Clone(own.Labels)}
	b.Labels[PeerLabel] = domain
	return b
}

// pageSize is how many objects are in memory at once to see which are to be deleted.
const pageSize = 10

// sweeper deletes the objects of trust domains that a signer's bundle is no longer federated with.
type sweeper struct {
	door   *Door
	bundle Bundle
	loop   *owned.Loop
}

func (d *Door) newSweeper(b Bundle) *sweeper {
	s := &sweeper{door: d, bundle: b}
	s.loop = &owned.Loop{
		Look: s.look, Rules: pace, Resync: resync, Held: d.cfg.Held, Log: d.cfg.Log.With("cluster", d.cfg.Cluster, "signer", b.Signer),
		What: "a trust bundle", Lacks: "cannot delete the trust bundle of a trust domain that is no longer federated",
	}
	return s
}

// look goes through the objects by pages: each has up to 1 MiB.
func (s *sweeper) look(ctx context.Context) error {
	var errs []error
	for next := ""; ; {
		page, err := s.page(ctx, next)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for i := range page.Items {
			if o := &page.Items[i]; s.stray(o) {
				errs = append(errs, s.remove(ctx, o))
			}
		}
		if next = page.Continue; next == "" {
			return errors.Join(errs...)
		}
	}
}

func (s *sweeper) page(ctx context.Context, next string) (*certificatesv1.ClusterTrustBundleList, error) {
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	return s.door.cfg.Client.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set(owned.Labels()).String(), FieldSelector: fields.OneTermEqualSelector("spec.signerName", s.bundle.Signer).String(),
		Limit: pageSize, Continue: next,
	})
}

// stray reports whether an object is ours, and of a trust domain that is no longer federated.
func (s *sweeper) stray(o *certificatesv1.ClusterTrustBundle) bool {
	domain, beside := strings.CutPrefix(o.Name, FederatedName(s.bundle.Name, ""))
	return beside && o.Spec.SignerName == s.bundle.Signer && owned.Labelled(o.Labels) && !slices.Contains(s.bundle.Federated.TrustDomains, domain)
}

// remove deletes what was found, and no object that has taken its name since.
func (s *sweeper) remove(ctx context.Context, o *certificatesv1.ClusterTrustBundle) error {
	if err := s.door.cfg.Held(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, owned.CallTimeout)
	defer cancel()
	err := s.door.cfg.Client.CertificatesV1().ClusterTrustBundles().Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("failed to delete ClusterTrustBundle %q of a trust domain that is no longer federated: %w", o.Name, err)
	}
	s.door.cfg.Log.Info("deleted the trust bundle of a trust domain that is no longer federated", "cluster", s.door.cfg.Cluster, "object", o.Name)
	return nil
}
