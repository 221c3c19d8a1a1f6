//go:build e2e

package real_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// It could sign a certificate for anybody whom the API server believes.
func TestRealClientCAOfTheAPIServerSignsNothing(t *testing.T) {
	authority := namingCA{CA: catest.NewCA(catest.Options{NamesFromRequest: true})}
	file := filepath.Join(t.TempDir(), "clients.pem")
	must(t, os.WriteFile(file, authority.Bundle().PEM(), 0o600))
	c := kubetest.Start(t, kubetest.Options{Nodes: true, Flags: []string{"--requestheader-client-ca-file=" + file}})
	o := openWith(t, c, authority, ra.Limits{})
	o.ServiceAccount("shop", "web")
	o.Node("one")
	request := o.ask("shop", "web-0")[0]
	kubetest.Await(t, "the client CA is not noticed", func(context.Context) (bool, error) {
		return strings.Contains(o.log.String(), "could sign an administrator"), nil
	})
	now, err := o.Client().CertificatesV1().PodCertificateRequests("shop").Get(t.Context(), request.Name, metav1.GetOptions{})
	must(t, err)
	if kind, c := outcome(now); kind != "" || len(o.ca.Requests()) > 0 {
		t.Errorf("the request is %s: %s, and the CA was asked %d times", kind, c.Message, len(o.ca.Requests()))
	}
}

func TestRealTrustBundleIsKept(t *testing.T) {
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	bundles := o.Client().CertificatesV1().ClusterTrustBundles()
	first := o.ca.Bundle()
	o.awaitBundle("after the start", first)
	must(t, bundles.Delete(t.Context(), bundleName, metav1.DeleteOptions{}))
	o.awaitBundle("after its deletion", first)
	o.ca.Rotate()
	both := first.Union(o.ca.Bundle())
	o.awaitBundle("after a new root", both)
	emptied, err := bundles.Get(t.Context(), bundleName, metav1.GetOptions{})
	must(t, err)
	emptied.Spec.TrustBundle = string(catest.NewCA(catest.Options{}).Bundle().PEM())
	_, err = bundles.Update(t.Context(), emptied, metav1.UpdateOptions{})
	must(t, err)
	o.awaitBundle("after another's edit", both)
}

func (o *registrar) awaitBundle(when string, want *pki.Bundle) {
	o.t.Helper()
	kubetest.Await(o.t, "the trust bundle is not right "+when, func(ctx context.Context) (bool, error) {
		object, err := o.Client().CertificatesV1().ClusterTrustBundles().Get(ctx, bundleName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return holds(object, want)
	})
}

func holds(object *certificatesv1.ClusterTrustBundle, want *pki.Bundle) (bool, error) {
	got, err := pki.ParseBundle([]byte(object.Spec.TrustBundle))
	return err == nil && got.Equal(want), err
}
