//go:build e2e && linux

package real_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/credentialfolder"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

const (
	partner       = "partner.example"
	partnerBundle = bundleName + "." + partner
	partnerFile   = partner + ".spiffe-trust-bundle.pem"
	folderVolume  = "spiffe-credentials"
)

// folderPod is a pod with the volume that SPIFFE's Filesystem Delivery prints (appendix B), but for the
// name of the file with the key, which is that of section 2. The printed one has no optional sources.
func folderPod(name, node string, optional bool) *corev1.Pod {
	pod := kubetest.CertificatePod("shop", name, "web", node, signer)
	of := func(peer string, optional *bool) corev1.VolumeProjection {
		return corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
			SignerName: new(signer), Path: peer + ".spiffe-trust-bundle.pem", Optional: optional,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				"k8s.spiffe.io/canarying": "live", "k8s.spiffe.io/workload-trust-domain": "example.org", "k8s.spiffe.io/peer-trust-domain": peer,
			}},
		}}
	}
	foreign := of(partner, nil)
	if optional {
		foreign = of(partner, new(true))
	}
	pod.Spec.Volumes[0].Name, pod.Spec.Containers[0].VolumeMounts[0].Name = folderVolume, folderVolume
	pod.Spec.Volumes[0].Projected.Sources = []corev1.VolumeProjection{of("example.org", nil), foreign, {
		PodCertificate: &corev1.PodCertificateProjection{SignerName: signer, KeyType: "ECDSAP256", CredentialBundlePath: "credential-bundle.private-key.pem"},
	}}
	return pod
}

// folders are pods with credential folders, and the bundle endpoint of a partner.
type folders struct {
	*deployment
	t        *testing.T
	node     *kubetest.Node
	bundle   *spiffebundle.Bundle
	endpoint string // its setting
}

func openFolders(t *testing.T) *folders {
	t.Helper()
	domain := spiffeid.RequireTrustDomainFromString(partner)
	f := &folders{t: t, bundle: spiffebundle.New(domain)}
	handler, err := federation.NewHandler(domain, f.bundle)
	must(t, err)
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	file := filepath.Join(proctest.Folder(t), "web.pem")
	must(t, os.WriteFile(file, (&certtest.Pair{Cert: server.Certificate()}).PEM(), 0o600))
	f.endpoint = fmt.Sprintf("{trust_domain: %s, url: %q, root_file: %q}", partner, server.URL, file)
	f.deployment = deploy(t, kubetest.Start(t, kubetest.Options{Nodes: true}), "federation")
	f.ServiceAccount("shop", "web")
	f.node = f.HollowNode("one")
	return f
}

// follow starts the program with these endpoints.
func (f *folders) follow(endpoints string) *replica {
	f.t.Helper()
	f.deployment.bundle = ", labels: {k8s.spiffe.io/canarying: live, k8s.spiffe.io/workload-trust-domain: example.org, k8s.spiffe.io/peer-trust-domain: example.org}, bundle_endpoints: [" + endpoints + "]"
	r := f.start(shipped)
	r.awaitLeading()
	return r
}

// until waits for the kubelet to do something with a pod. A changed annotation has it look at once.
func (f *folders) until(pod *corev1.Pod, what string, so func(folder string) error) {
	f.t.Helper()
	folder, err := f.node.Volume(pod, folderVolume)
	must(f.t, err)
	kubetest.Await(f.t, what, func(ctx context.Context) (bool, error) {
		if err = so(folder); err == nil {
			return true, nil
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"looked":"%d"}}}`, time.Now().UnixNano())
		_, failed := f.Client().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return false, errors.Join(err, failed)
	})
}

// admits returns an error unless a pod takes a peer with a certificate below the root.
func (f *folders) admits(folder string, root *certtest.Pair) error {
	f.t.Helper()
	_, err := credentialfolder.Verify(os.DirFS(folder), []*x509.Certificate{root.Leaf(f.t, time.Hour, "spiffe://"+partner+"/db").Cert})
	return err
}

// A pod of a real kubelet finds a credential folder, read by the standard alone; it follows the
// partner's roots, and the end of the federation.
func TestRealPodHasACredentialFolder(t *testing.T) {
	f := openFolders(t)
	first, second := certtest.Root(t), certtest.Root(t)
	f.bundle.AddX509Authority(first.Cert)
	r := f.follow(f.endpoint)
	pod := f.CreatePod(folderPod("optional", f.node.Name, true))
	printed := f.CreatePod(folderPod("printed", f.node.Name, false))
	f.AwaitRunning(pod, printed)
	for _, p := range []*corev1.Pod{pod, printed} {
		f.until(p, "the folder conforms to the standard", func(folder string) error {
			id, err := credentialfolder.Load(os.DirFS(folder))
			if err == nil && id.ID != "spiffe://example.org/ns/shop/sa/web" {
				err = errors.New(id.ID)
			}
			return errors.Join(err, f.admits(folder, first))
		})
	}
	r.Stop(syscall.SIGTERM)

	f.bundle.AddX509Authority(second.Cert)
	f.bundle.RemoveX509Authority(first.Cert)
	r = f.follow(f.endpoint)
	for _, p := range []*corev1.Pod{pod, printed} {
		f.until(p, "the partner's next root is in the folder", func(folder string) error {
			if err := f.admits(folder, first); err == nil {
				return errors.New("the partner's former root is trusted")
			}
			return f.admits(folder, second)
		})
	}
	r.Stop(syscall.SIGTERM)

	logged, err := f.node.Log()
	must(t, err)
	f.follow("")
	f.until(pod, "the partner is not federated any more", func(folder string) error {
		if err := f.admits(folder, second); err == nil {
			return errors.New("the partner's root is trusted")
		}
		_, err := credentialfolder.Load(os.DirFS(folder))
		return err
	})
	_, err = f.Client().CertificatesV1().ClusterTrustBundles().Get(t.Context(), partnerBundle, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the object: %v", err)
	}
	f.checkPrinted(printed, second, len(logged))
}

// checkPrinted shows why docs/pod-certificates.md has optional sources: the kubelet writes nothing into
// a volume one of whose other sources is missing. Its log is read from an offset.
func (f *folders) checkPrinted(pod *corev1.Pod, root *certtest.Pair, from int) {
	f.t.Helper()
	f.until(pod, "the kubelet logs the missing source", func(string) error {
		text, err := f.node.Log()
		if err == nil && !strings.Contains(text[from:], "matched zero ClusterTrustBundles") {
			err = errors.New("not logged")
		}
		return err
	})
	folder, err := f.node.Volume(pod, folderVolume)
	must(f.t, err)
	if err := f.admits(folder, root); err != nil {
		f.t.Errorf("the kubelet has changed %s, so docs/pod-certificates.md is wrong: %v", partnerFile, err)
	}
}
