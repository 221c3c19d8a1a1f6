//go:build e2e

package deploy_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The component's rights alone suffice for the object that Istio's charts mount.
func TestRealTrustBundleOfAMeshIsKept(t *testing.T) {
	const name, signer = "istio.io:istiod-ca:root-cert", "istio.io/istiod-ca"
	c := kubetest.Start(t, kubetest.Options{})
	c.Namespace(raNamespace)
	apply(t, c, built(t, "resources: [BASE/ra/rights]\ncomponents: [BASE/ra/mesh-bundle]", nil))
	for _, role := range []string{"countersign-ra-bundles", "countersign-ra-signer"} { // those of another signer
		must(t, c.Client().RbacV1().ClusterRoles().Delete(t.Context(), role, metav1.DeleteOptions{}))
	}
	roots := catest.NewCA(catest.Options{}).Bundle()
	door, err := trustbundle.New(trustbundle.Config{
		Cluster: "home", Client: c.ClientFor(c.Account(raNamespace, raAccount)), Log: slog.New(slog.DiscardHandler),
		Bundles: []trustbundle.Bundle{{Signer: signer, Name: name, Authority: "vault"}}, Roots: func(string) *pki.Bundle { return roots },
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); door.Run(ctx) }()
	defer func() { cancel(); <-over }()
	bundles := c.Client().CertificatesV1().ClusterTrustBundles()
	written := func() error {
		found, err := bundles.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && (found.Spec.TrustBundle != string(roots.PEM()) || found.Spec.SignerName != signer) {
			err = errors.New("it has other roots, or another signer")
		}
		return errors.Join(err, door.Ready())
	}
	soon(t, "it is written", written)
	must(t, bundles.Delete(t.Context(), name, metav1.DeleteOptions{}))
	soon(t, "it is written again", written)
}
