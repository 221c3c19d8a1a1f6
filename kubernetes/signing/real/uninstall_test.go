//go:build e2e

package real_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/owned"
)

// The commands of docs/ra.md remove what an uninstall leaves, and no other object.
func TestDocumentedCommandsRemoveWhatAnUninstallLeaves(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	for _, namespace := range []string{home, "shop", "istio-system"} {
		c.Namespace(namespace)
	}
	ctx, api := t.Context(), c.ClientFor(c.Admin())
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{owned.ManagedBy: owned.Manager}}
	}
	_, err := api.CertificatesV1().ClusterTrustBundles().Create(ctx, &certificatesv1.ClusterTrustBundle{
		ObjectMeta: named("istio.io:istiod-ca:root-cert"), Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "istio.io/istiod-ca", TrustBundle: string(certtest.Root(t).PEM())},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = api.CoreV1().Secrets("istio-system").Create(ctx, &corev1.Secret{ObjectMeta: named("istiod-tls")}, metav1.CreateOptions{})
	must(t, err)
	_, err = api.CoordinationV1().Leases(home).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "countersign-ra"}}, metav1.CreateOptions{})
	must(t, err)
	for name, in := range map[string]string{"istio-ca-root-cert": "shop", "countersign-ra": home, "countersign-ra-renewals-0": home, "countersign-ra-renewals-7": home, "kept": home} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if in == "shop" {
			m.ObjectMeta = named(name)
		}
		_, err = api.CoreV1().ConfigMaps(in).Create(ctx, m, metav1.CreateOptions{})
		must(t, err)
	}

	left := runDocumented(t, c, "## What an uninstall leaves", `kubectl get clustertrustbundles --output name
		kubectl get configmaps,secrets,leases --all-namespaces --output name --field-selector metadata.namespace!=kube-system`)
	if left != "configmap/kept\n" {
		t.Errorf("left: %s", left)
	}
}

// runDocumented runs the commands below a heading of docs/ra.md, and returns the output of the last.
func runDocumented(t testing.TB, c *kubetest.Cluster, heading, last string) string {
	t.Helper()
	page, err := os.ReadFile(programs.File(t, "docs/ra.md"))
	must(t, err)
	_, section, _ := strings.Cut(string(page), heading)
	section, _, _ = strings.Cut(section, "\n## ")
	script := "set -e\nexec 3>&1 >&2\n"
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		script += block[1]
	}
	folder := t.TempDir()
	write(t, folder, "kubeconfig", string(c.AdminKubeconfig()))
	cmd := exec.Command("sh", "-c", script+"{ "+last+"\n} >&3")
	cmd.Env = []string{"HOME=" + folder, "KUBECONFIG=" + filepath.Join(folder, "kubeconfig"), "PATH=" + programs.Foreign(t, "COUNTERSIGN_KUBERNETES") + ":" + os.Getenv("PATH")}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return string(out)
}
