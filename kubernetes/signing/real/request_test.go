//go:build e2e

package real_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// requests returns all of namespace shop.
func (s *site) requests() []certificatesv1.PodCertificateRequest {
	s.t.Helper()
	all, err := s.Client().CertificatesV1().PodCertificateRequests("shop").List(s.t.Context(), metav1.ListOptions{})
	must(s.t, err)
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
func (s *site) awaitOutcome(t testing.TB, r *certificatesv1.PodCertificateRequest) (condition metav1.Condition) {
	t.Helper()
	kubetest.Await(t, fmt.Sprintf("request %s/%s of pod %s is pending", r.Namespace, r.Name, r.Spec.PodName), func(ctx context.Context) (bool, error) {
		now, err := s.Client().CertificatesV1().PodCertificateRequests(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		_, condition = outcome(now)
		return condition.Type != "", nil
	})
	return condition
}

// ask creates pods on node one, and their requests as its kubelet.
func (s *site) ask(namespace string, names ...string) (made []*certificatesv1.PodCertificateRequest) {
	s.t.Helper()
	kubelet := s.ClientFor(s.NodeUser("one"))
	for _, name := range names {
		pod := s.CreatePod(kubetest.CertificatePod(namespace, name, "web", "one", signer))
		made = append(made, s.askFor(kubelet, pod))
	}
	return made
}

// askFor creates the request for a pod, as its kubelet.
func (s *site) askFor(kubelet kubernetes.Interface, pod *corev1.Pod) *certificatesv1.PodCertificateRequest {
	s.t.Helper()
	return s.send(kubelet, s.CertificateRequest(pod, signer))
}

// send creates a request, as its kubelet.
func (s *site) send(kubelet kubernetes.Interface, request *certificatesv1.PodCertificateRequest) (made *certificatesv1.PodCertificateRequest) {
	s.t.Helper()
	// NodeRestriction may see the pod a moment late.
	kubetest.Await(s.t, "the node may not ask for pod "+request.Spec.PodName, func(ctx context.Context) (ok bool, err error) {
		made, err = kubelet.CertificatesV1().PodCertificateRequests(request.Namespace).Create(ctx, request, metav1.CreateOptions{})
		return err == nil, err
	})
	return made
}

// awaitIssued returns when all these requests have certificates.
func (s *site) awaitIssued(requests ...*certificatesv1.PodCertificateRequest) {
	s.t.Helper()
	for _, r := range requests {
		if got := s.awaitOutcome(s.t, r); got.Type != issued {
			s.t.Errorf("the request of pod %s is %s: %s: %s", r.Spec.PodName, got.Type, got.Reason, got.Message)
		}
	}
}

// leaf returns the certificate in the status of a request.
func (s *site) leaf(r *certificatesv1.PodCertificateRequest) *x509.Certificate {
	s.t.Helper()
	chain, err := pki.ParseCertificates([]byte(r.Status.CertificateChain))
	must(s.t, err)
	return chain[0]
}

// warmUp has one certificate issued: from the first reply, which it may not be able to use, the
// engine learns how long before its time the CA has a certificate begin.
func (s *site) warmUp() {
	s.t.Helper()
	s.awaitIssued(s.ask("shop", "first")...)
}
