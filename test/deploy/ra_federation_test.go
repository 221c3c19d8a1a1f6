//go:build e2e

package deploy_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	raPartner        = raBundle + ".partner.example"
	raFormer         = raBundle + ".former.example"
	federationRights = "resources: [BASE/ra/rights]\ncomponents: [BASE/ra/federation]"
)

// federationBound is a cluster with the rights of the component, and a client that has them.
func federationBound(t *testing.T) (*kubetest.Cluster, *kubernetes.Clientset) {
	t.Helper()
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace(raNamespace)
	for name, signer := range map[string]string{"unlinked": "", "example.com:other:x": "example.com/other"} {
		trustBundleOf(t, c, name, signer, nil)
	}
	trustBundleOf(t, c, raFormer, raSigner, owned.Labels())
	apply(t, c, built(t, federationRights, nil))
	client := c.ClientFor(c.Account(raNamespace, raAccount))
	for _, verb := range []string{"update", "delete"} {
		soon(t, verb, func() error { return changeBundle(t.Context(), client, verb, raFormer) })
		soon(t, "the policy holds", func() error { return refused(changeBundle(t.Context(), client, verb, "unlinked")) })
	}
	return c, client
}

func trustBundleOf(t *testing.T, c *kubetest.Cluster, name, signer string, labels map[string]string) {
	t.Helper()
	b := trustBundle(root)
	b.Name, b.Spec.SignerName, b.Labels = name, signer, labels
	must(t, got(c.Client().CertificatesV1().ClusterTrustBundles().Create(t.Context(), b, metav1.CreateOptions{})))
}

// changeBundle updates or deletes an object that is there, for a trial.
func changeBundle(ctx context.Context, c kubernetes.Interface, verb, name string) error {
	bundles := c.CertificatesV1().ClusterTrustBundles()
	if verb == "delete" {
		return bundles.Delete(ctx, name, metav1.DeleteOptions{DryRun: dry})
	}
	b, err := bundles.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	b.Labels = map[string]string{"changed": "true"}
	return got(bundles.Update(ctx, b, metav1.UpdateOptions{DryRun: dry}))
}

// The component's rights suffice to write, change and delete the objects of foreign trust domains. The
// role has no names, so the admission policy holds the account to the bundles of its signers.
func TestRealTrustBundlesOfForeignTrustDomainsAreKept(t *testing.T) {
	c, client := federationBound(t)
	keepsForeignBundles(t, c, client)
	trustBundleOf(t, c, raFormer, raSigner, owned.Labels())
	for _, verb := range []string{"update", "delete"} {
		for _, name := range []string{"unlinked", "example.com:other:x"} {
			if err := refused(changeBundle(t.Context(), client, verb, name)); err != nil {
				t.Errorf("%s %s: %v", verb, name, err)
			}
			must(t, changeBundle(t.Context(), c.Client(), verb, name)) // an administrator may
		}
		must(t, changeBundle(t.Context(), client, verb, raFormer))
		withoutVerb(t, c, verb)
		soon(t, "without "+verb, func() error { return refused(changeBundle(t.Context(), client, verb, raFormer)) })
	}
	policyFollowsTheRelease(t, c)
}

// policyFollowsTheRelease checks that the policy is for the account of the installation alone: one of the
// same name in another namespace may be anyone's.
func policyFollowsTheRelease(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	change := func(namespace string) error {
		return changeBundle(t.Context(), as(t, c, "system:serviceaccount:"+namespace+":"+raAccount), "update", "unlinked")
	}
	must(t, change("tenant"))
	must(t, refused(change(raNamespace)))
	c.Namespace("mesh")
	apply(t, c, built(t, "namespace: mesh\n"+federationRights, nil), "--force-conflicts")
	soon(t, "the policy follows the release", func() error { return errors.Join(change(raNamespace), refused(change("mesh"))) })
}

// keepsForeignBundles runs what writes them, until it has done each thing once.
func keepsForeignBundles(t *testing.T, c *kubetest.Cluster, client kubernetes.Interface) {
	t.Helper()
	own, foreign := catest.NewCA(catest.Options{}).Bundle(), new(atomic.Pointer[pki.Bundle])
	foreign.Store(catest.NewCA(catest.Options{}).Bundle())
	door, err := trustbundle.New(trustbundle.Config{
		Cluster: "home", Client: client, Log: slog.New(slog.DiscardHandler), Roots: func(string) *pki.Bundle { return own },
		Bundles: []trustbundle.Bundle{{
			Signer: raSigner, Name: raBundle, Authority: "vault", Labels: map[string]string{trustbundle.WorkloadLabel: "example.org", trustbundle.PeerLabel: "example.org"},
			Federated: trustbundle.Federated{TrustDomains: []string{"partner.example"}, Roots: func(string) (*pki.Bundle, bool) { return foreign.Load(), true }},
		}},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); door.Run(ctx) }()
	defer func() { cancel(); <-over }()
	written := func() error {
		found, err := c.Client().CertificatesV1().ClusterTrustBundles().Get(t.Context(), raPartner, metav1.GetOptions{})
		if err == nil && (found.Spec.TrustBundle != string(foreign.Load().PEM()) || found.Labels[trustbundle.PeerLabel] != "partner.example") {
			err = errors.New("it has other roots, or another label")
		}
		return err
	}
	soon(t, "it is written", written)
	foreign.Store(catest.NewCA(catest.Options{}).Bundle())
	door.ForeignChanged(raSigner, "partner.example")
	soon(t, "it is changed", written)
	last := foreign.Swap(pki.NewBundle())
	door.ForeignChanged(raSigner, "partner.example")
	soon(t, "the roots that were revoked are gone", func() error {
		found, err := c.Client().CertificatesV1().ClusterTrustBundles().Get(t.Context(), raPartner, metav1.GetOptions{})
		if err == nil && found.Spec.TrustBundle == string(last.PEM()) {
			err = errors.New("they are there")
		}
		return err
	})
	soon(t, "that of the former one is deleted", func() error {
		_, err := c.Client().CertificatesV1().ClusterTrustBundles().Get(t.Context(), raFormer, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// withoutVerb takes a verb from the component's role.
func withoutVerb(t *testing.T, c *kubetest.Cluster, verb string) {
	t.Helper()
	roles := c.Client().RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "countersign-ra-federation", metav1.GetOptions{})
	must(t, err)
	rule := &role.Rules[0]
	rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb })
	if len(rule.Verbs) == 0 {
		role.Rules = []rbacv1.PolicyRule{}
	}
	must(t, got(roles.Update(t.Context(), role, metav1.UpdateOptions{})))
}
