//go:build linux

package kubetest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// CertificateRequest returns a request as the pod's kubelet would create it, for tests that
// have none or want another one. The pod's account and node must exist.
func (c *Cluster) CertificateRequest(pod *corev1.Pod, signer string) *certificatesv1.PodCertificateRequest {
	c.t.Helper()
	account, err := c.admin.CoreV1().ServiceAccounts(pod.Namespace).Get(context.Background(), pod.Spec.ServiceAccountName, metav1.GetOptions{})
	must(c.t, err)
	node, err := c.admin.CoreV1().Nodes().Get(context.Background(), pod.Spec.NodeName, metav1.GetOptions{})
	must(c.t, err)
	seconds := int32(24 * 60 * 60)
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: signer, PodName: pod.Name, PodUID: pod.UID, MaxExpirationSeconds: &seconds,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID, NodeName: types.NodeName(pod.Spec.NodeName), NodeUID: node.UID,
			StubPKCS10Request: CSR(c.t, certtest.Root(c.t).Key, &x509.CertificateRequest{}),
		},
	}
}

// CSR returns a PKCS #10 request (DER). That of a kubelet has an empty template.
func CSR(tb testing.TB, key crypto.Signer, template *x509.CertificateRequest) []byte {
	tb.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	must(tb, err)
	return der
}

// AwaitRequest returns a request for a certificate of a pod, as soon as there is one.
func (c *Cluster) AwaitRequest(pod *corev1.Pod) (request *certificatesv1.PodCertificateRequest) {
	c.t.Helper()
	c.await(fmt.Sprintf("pod %s/%s has no certificate request", pod.Namespace, pod.Name), func(ctx context.Context) (bool, error) {
		all, err := c.admin.CertificatesV1().PodCertificateRequests(pod.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range all.Items {
			if all.Items[i].Spec.PodUID == pod.UID {
				request = &all.Items[i]
			}
		}
		return request != nil, fmt.Errorf("there are %d others", len(all.Items))
	})
	return request
}
