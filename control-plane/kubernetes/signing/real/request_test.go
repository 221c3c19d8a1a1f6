//go:build e2e

package real_test

import (
	"context"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/kubetest"
)

// requests returns all of namespace shop.
func (o *office) requests() []certificatesv1.PodCertificateRequest {
	o.t.Helper()
	all, err := o.Client().CertificatesV1().PodCertificateRequests("shop").List(o.t.Context(), metav1.ListOptions{})
	must(o.t, err)
	return all.Items
}

// outcome returns the type of a request's condition, and the condition; empty while it is pending.
func outcome(r *certificatesv1.PodCertificateRequest) (string, metav1.Condition) {
	if len(r.Status.Conditions) == 0 {
		return "", metav1.Condition{}
	}
	return r.Status.Conditions[0].Type, r.Status.Conditions[0]
}

// awaitOutcome returns the first condition that a request gets.
func (o *office) awaitOutcome(t testing.TB, r *certificatesv1.PodCertificateRequest) (condition metav1.Condition) {
	t.Helper()
	kubetest.Await(t, fmt.Sprintf("request %s/%s of pod %s is pending", r.Namespace, r.Name, r.Spec.PodName), func(ctx context.Context) (bool, error) {
		now, err := o.Client().CertificatesV1().PodCertificateRequests(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		_, condition = outcome(now)
		return condition.Type != "", nil
	})
	return condition
}

// ask creates pods on node one, and their requests as its kubelet.
func (o *office) ask(namespace string, names ...string) (made []*certificatesv1.PodCertificateRequest) {
	o.t.Helper()
	kubelet := o.ClientFor(o.NodeUser("one")).CertificatesV1().PodCertificateRequests(namespace)
	for _, name := range names {
		pod := o.CreatePod(kubetest.CertificatePod(namespace, name, "web", "one", signer))
		request := o.CertificateRequest(pod, signer)
		// NodeRestriction may see the pod a moment late.
		kubetest.Await(o.t, "the node may not ask for pod "+name, func(ctx context.Context) (bool, error) {
			r, err := kubelet.Create(ctx, request, metav1.CreateOptions{})
			if err == nil {
				made = append(made, r)
			}
			return err == nil, err
		})
	}
	return made
}

// awaitIssued returns when all these requests have certificates.
func (o *office) awaitIssued(requests ...*certificatesv1.PodCertificateRequest) {
	o.t.Helper()
	for _, r := range requests {
		if got := o.awaitOutcome(o.t, r); got.Type != issued {
			o.t.Errorf("the request of pod %s is %s: %s: %s", r.Spec.PodName, got.Type, got.Reason, got.Message)
		}
	}
}

// warmUp has one certificate issued: from the first reply, which it may not be able to use, the
// engine learns how long before its time the CA has a certificate begin.
func (o *office) warmUp() {
	o.t.Helper()
	o.awaitIssued(o.ask("shop", "first")...)
}
