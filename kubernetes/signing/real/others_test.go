//go:build e2e

package real_test

import (
	"context"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/certificates/v1"
)

// Nobody but the signer has a word in a request, not even who made it.
func TestRealOthersCannotIssueForThemselves(t *testing.T) {
	a := newArena(t)
	request := a.askFor(a.node, a.targets["web"])
	if got := a.awaitOutcome(t, request); got.Type != issued {
		t.Fatalf("a genuine request is %s: %s", got.Type, got.Message)
	}
	request, err := a.Client().CertificatesV1().PodCertificateRequests("shop").Get(t.Context(), request.Name, metav1.GetOptions{})
	must(t, err)
	// The admission policy is for our signers alone.
	others := a.CertificateRequest(a.targets["web"], "example.org/other")
	others, err = a.Client().CertificatesV1().PodCertificateRequests("shop").Create(t.Context(), others, metav1.CreateOptions{})
	must(t, err)
	writer := a.ClientFor(a.User("writer"))
	a.Bind("", "writer",
		rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"podcertificaterequests/status"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"}, Verbs: []string{"create"}})
	for _, c := range []struct {
		name, refused string
		who           kubernetes.Interface
		attempt       func(context.Context, clientv1.CertificatesV1Interface) error
	}{
		{"a node writes a status", "nodes may not access the status", a.node, updateStatus(request)},
		{"a node edits a request", "nodes may not update podcertificaterequests", a.node, update(request)},
		{"a node reads all requests", "can only list/watch podcertificaterequests with nodeName field selector", a.node, list},
		{"a user who may write statuses writes one", `is not permitted to "sign" for signer`, writer, updateStatus(others)},
		{"a user who may write trust bundles writes one", "not permitted to attest for signerName", writer, attest(string(a.ca.Bundle().PEM()))},
		{"an administrator edits a request", "field is immutable", a.Client(), update(request)},
		{"an administrator edits an issued certificate", "immutable after PodCertificateRequest is issued", a.Client(), updateStatus(request)},
	} {
		t.Run(c.name, func(t *testing.T) {
			awaitRefusal(t, c.refused, func(ctx context.Context) error { return c.attempt(ctx, c.who.CertificatesV1()) })
		})
	}
}

func list(ctx context.Context, all clientv1.CertificatesV1Interface) error {
	_, err := all.PodCertificateRequests("").List(ctx, metav1.ListOptions{})
	return err
}

func update(r *certificatesv1.PodCertificateRequest) func(context.Context, clientv1.CertificatesV1Interface) error {
	return func(ctx context.Context, all clientv1.CertificatesV1Interface) error {
		edited := r.DeepCopy()
		edited.Spec.PodName = "admin"
		_, err := all.PodCertificateRequests(r.Namespace).Update(ctx, edited, metav1.UpdateOptions{})
		return err
	}
}

func updateStatus(r *certificatesv1.PodCertificateRequest) func(context.Context, clientv1.CertificatesV1Interface) error {
	return func(ctx context.Context, all clientv1.CertificatesV1Interface) error {
		edited := r.DeepCopy()
		edited.Status.Conditions = []metav1.Condition{{Type: denied, Status: metav1.ConditionTrue, Reason: "No", LastTransitionTime: metav1.Now()}}
		_, err := all.PodCertificateRequests(r.Namespace).UpdateStatus(ctx, edited, metav1.UpdateOptions{})
		return err
	}
}

func attest(roots string) func(context.Context, clientv1.CertificatesV1Interface) error {
	return func(ctx context.Context, all clientv1.CertificatesV1Interface) error {
		_, err := all.ClusterTrustBundles().Create(ctx, &certificatesv1.ClusterTrustBundle{
			ObjectMeta: metav1.ObjectMeta{Name: "example.com:mesh:mine"},
			Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: roots},
		}, metav1.CreateOptions{})
		return err
	}
}
