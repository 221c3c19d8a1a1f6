//go:build e2e

package real_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
)

// A request bears no requester: without the policy, whoever may create one gets any pod's
// certificate by a consistent lie.
func TestRealPolicyLetsNodesAloneAsk(t *testing.T) {
	a := newArena(t)
	lie := a.CertificateRequest(a.targets["elsewhere"], signer)
	for who, client := range map[string]kubernetes.Interface{"a user": a.user, "an administrator": a.Client(), "another node": a.node} {
		words := "only system:node:two may request certificates of its pods"
		if who == "another node" {
			words = "which is not the requesting node"
		}
		awaitRefusal(t, words, func(ctx context.Context) error {
			_, err := client.CertificatesV1().PodCertificateRequests("shop").Create(ctx, lie, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
	a.checkIssued()
	a.awaitProtection(guard.Protected)
	a.dropPolicy()
	made, err := a.user.CertificatesV1().PodCertificateRequests("shop").Create(t.Context(), lie, metav1.CreateOptions{})
	must(t, err)
	if got := a.awaitOutcome(t, made); got.Type != issued {
		t.Errorf("without the policy, a lie is %s: the policy is no longer needed", got.Type)
	}
	a.awaitProtection(guard.Unprotected)
}

// awaitProtection compares what the guard sees in the cluster.
func (a *arena) awaitProtection(want string) {
	a.t.Helper()
	admission, err := guard.NewAdmission(guard.AdmissionConfig{Cluster: cluster, Client: a.client(), Signers: []string{signer}, Log: a.log.Logger()})
	must(a.t, err)
	defer inBackground(a.t, admission.Run)()
	kubetest.Await(a.t, "the guard does not see that the cluster is "+want, func(context.Context) (bool, error) {
		return admission.Protection().State == want, nil
	})
}
