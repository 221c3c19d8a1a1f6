//go:build e2e

package deploy_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/background"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/kubeconfig"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// deployed is a cluster with the base's rights, a secret and a configmap to be seen.
func deployed(t *testing.T, name string, flags ...string) *kubetest.Cluster {
	t.Helper()
	c := kubetest.Start(t, kubetest.Options{Name: name, Flags: flags})
	c.Namespace("mesh", "shop")
	apply(t, c, built(t, "namespace: mesh\nresources: [BASE/remote]", nil))
	meta := metav1.ObjectMeta{Name: name}
	_, err := c.Client().CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Client().CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	must(t, err)
	return c
}

// Two clusters are followed, one of them by a kubeconfig with a token of the account.
func TestRealFleetRunsWithBaseRights(t *testing.T) {
	// The remote one lists as servers did before they streamed what there is by a watch.
	local, remote := deployed(t, "local"), deployed(t, "remote", "--feature-gates=WatchList=false")
	_, err := local.Client().CoreV1().Secrets("mesh").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "remotes", Labels: map[string]string{"istio/multiCluster": "true"}},
		Data:       map[string][]byte{"remote": remote.Kubeconfig(remote.Account("mesh", "countersign-discovery"))},
	}, metav1.CreateOptions{})
	must(t, err)
	f, err := fleet.New(fleet.Config{
		Local: local.ConfigFor(local.Account("mesh", "countersign-discovery")), LocalID: "local", Namespace: "mesh",
		Rules: kubeconfig.Rules{Servers: []string{"127.0.0.1"}},
	})
	must(t, err)
	defer background.Run(f.Run)()
	for _, id := range []string{"local", "remote"} {
		soon(t, id, func() error { return seen(f, id) })
	}
	for id, c := range map[string]*kubetest.Cluster{"local": local, "remote": remote} {
		c.ServiceAccount("shop", "web")
		of, _ := f.Cluster(id)
		if err := needs["create subjectaccessreviews"](t.Context(), of.Client()); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if _, err := of.Authenticator().Authenticate(t.Context(), authn.Credential{Token: ca.Token(c.Token("shop", "web", "istio-ca"))}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func seen(f *fleet.Fleet, id string) error {
	c, ok := f.Cluster(id)
	if !ok {
		return fmt.Errorf("it is not there: %w", f.Ready())
	}
	_, secret := c.Secret("shop", id)
	_, config := c.ConfigMap("shop", id)
	return errors.Join(secret, config)
}
