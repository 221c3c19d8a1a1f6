//go:build e2e

package kubetest_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

const signer = "example.org/workload"

// What tests of a signer rely on: the kubelet asks, waits, and writes what it gets.
func TestRealPodStartsOnceItsCertificateIsSigned(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{Nodes: true})
	c.ServiceAccount("shop", "web")
	node := c.HollowNode("one")
	pod := c.CreatePod(kubetest.CertificatePod("shop", "web-0", "web", node.Name, signer))
	request := c.AwaitRequest(pod)
	if s := request.Spec; s.PodUID != pod.UID || s.NodeUID != node.UID || s.SignerName != signer {
		t.Errorf("the kubelet asks for %+v", s)
	}
	root, chain := sign(t, c.Client(), request)
	c.AwaitRunning(pod)
	if got, err := node.ReadFile(pod, kubetest.CertificateVolume, kubetest.CredentialsFile); err != nil || !bytes.HasSuffix(got, chain) {
		t.Errorf("the credentials do not end with the chain: %v", err)
	}
	if got, err := node.ReadFile(pod, kubetest.CertificateVolume, kubetest.RootsFile); err != nil || !bytes.Equal(got, root) {
		t.Errorf("the roots are %q: %v", got, err)
	}
}

// sign publishes a new root, signs the request with it, and returns both.
func sign(t *testing.T, client kubernetes.Interface, request *certificatesv1.PodCertificateRequest) (root, chain []byte) {
	t.Helper()
	csr, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	must(t, err)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	end, refresh := metav1.NewTime(now.Add(time.Hour)), metav1.NewTime(now.Add(30*time.Minute))
	authority := certtest.SelfSigned(t, &x509.Certificate{NotBefore: now.Time, NotAfter: end.Time, IsCA: true, BasicConstraintsValid: true})
	root = authority.PEM()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: now.Time, NotAfter: end.Time, DNSNames: []string{"web.shop.svc"}}
	chain = (&certtest.Pair{Cert: authority.Sign(t, leaf, csr.PublicKey)}).PEM()

	_, err = client.CertificatesV1().ClusterTrustBundles().Create(t.Context(), &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(signer, "/", ":") + ":roots"},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(root)},
	}, metav1.CreateOptions{})
	must(t, err)
	request.Status = certificatesv1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{
			Type: certificatesv1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Issued", LastTransitionTime: now,
		}},
		CertificateChain: string(chain), NotBefore: &now, NotAfter: &end, BeginRefreshAt: &refresh,
	}
	_, err = client.CertificatesV1().PodCertificateRequests(request.Namespace).UpdateStatus(t.Context(), request, metav1.UpdateOptions{})
	must(t, err)
	return root, chain
}

// The garbage collector is what frees a signer from the requests of deleted pods.
func TestRealRequestEndsWithItsPod(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{Nodes: true})
	c.Controllers()
	c.ServiceAccount("shop", "web")
	node := c.HollowNode("one")
	pod := c.CreatePod(kubetest.CertificatePod("shop", "web-0", "web", node.Name, signer))
	request := c.AwaitRequest(pod)
	must(t, c.Client().CoreV1().Pods("shop").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	kubetest.Await(t, "the request remains", func(ctx context.Context) (bool, error) {
		_, err := c.Client().CertificatesV1().PodCertificateRequests("shop").Get(ctx, request.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

func TestRealNodesEndWithTheirTest(t *testing.T) {
	var made []string
	t.Run("nodes", func(t *testing.T) {
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		kubetest.Start(t, kubetest.Options{Nodes: true}).HollowNodes("one", "two")
		made = outside(t, temporary)
		if len(made) != 4 {
			t.Errorf("two nodes have %q, want a folder and a socket each", made)
		}
	})
	for _, path := range made {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// outside is what kubelets, whose logs are below a folder, make outside of it.
func outside(t *testing.T, folder string) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(folder, "*", "*-kubelet-*.log"))
	must(t, err)
	var paths []string
	for _, log := range logs {
		text, err := os.ReadFile(log)
		must(t, err)
		paths = append(paths, regexp.MustCompile(`/tmp/(hollow-kubelet|kubelet_remote)[._0-9]+(\.sock)?`).FindAllString(string(text), -1)...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
