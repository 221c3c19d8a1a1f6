//go:build e2e && linux

package real_test

import (
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// byCluster has a rule for the pods of each cluster, and one for a namespace at home.
const byCluster = `
- name: remote
  match: {kinds: [pod], clusters: [east], namespaces: [shop]}
  names: {spiffe_id: "spiffe://example.org/{cluster}/ns/{namespace}/sa/{serviceAccount}"}
- name: pods
  match: {kinds: [pod], namespaces: [shop, bank]}
  names: {spiffe_id: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}"}
`

// introduce gives the program the other cluster, by the commands of docs/discovery.md for another
// account and namespace, as docs/pod-certificates.md says.
func introduce(t *testing.T, atHome, east *kubetest.Cluster) {
	t.Helper()
	page, err := os.ReadFile(programs.File(t, "docs/discovery.md"))
	must(t, err)
	_, commands, _ := strings.Cut(string(page), "```bash\n")
	commands, _, _ = strings.Cut(commands, "```")
	commands = strings.NewReplacer("deploy/kustomize/remote", "deploy/kustomize/ra/rights", "istio-system", home, "countersign-discovery", us).Replace(commands)
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = programs.File(t, ".")
	config := kubetest.Contexts(t, map[string]*kubetest.Cluster{"home": atHome, "east": east})
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + config, "PATH=" + programs.Foreign(t, "COUNTERSIGN_KUBERNETES") + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "the token for east ends at") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// One program signs in two clusters. The same pod of each has other names, by the policy.
func TestRealProgramSignsInTwoClusters(t *testing.T) {
	t.Parallel()
	d := deploy(t, kubetest.Start(t, kubetest.Options{Name: "home", Nodes: true}), "remotes")
	east := site{kubetest.Start(t, kubetest.Options{Name: "east", Nodes: true}), t}
	east.Namespace(home)
	introduce(t, d.Cluster, east.Cluster)
	d.rules, d.more = byCluster, "remotes: {secrets: true}\n"
	d.start(shipped).awaitLeading()
	var leaves []*x509.Certificate
	for _, c := range []struct {
		site
		id, bank string
	}{{d.site, "spiffe://example.org/ns/shop/sa/web", issued}, {east, "spiffe://example.org/east/ns/shop/sa/web", denied}} {
		c.Node("one")
		c.ServiceAccount("shop", "web")
		c.ServiceAccount("bank", "web")
		r := c.askNow("shop", "web-0")
		leaves = append(leaves, c.leaf(r))
		if kind, _ := outcome(r); kind != issued || len(c.leaf(r).URIs) != 1 || c.leaf(r).URIs[0].String() != c.id {
			t.Errorf("it is %s, for %s; want %s", kind, c.leaf(r).URIs, c.id)
		}
		if kind, condition := outcome(c.askNow("bank", "web-1")); kind != c.bank {
			t.Errorf("the pod of namespace bank is %s: %s; want %s", kind, condition.Message, c.bank)
		}
	}
	for _, c := range []site{d.site, east} {
		for _, leaf := range leaves {
			c.verify(leaf)
		}
	}
}

// askNow returns the request with its outcome.
func (s *site) askNow(namespace, pod string) *certificatesv1.PodCertificateRequest {
	s.t.Helper()
	made := s.ask(namespace, pod)[0]
	s.awaitOutcome(s.t, made)
	now, err := s.Client().CertificatesV1().PodCertificateRequests(namespace).Get(s.t.Context(), made.Name, metav1.GetOptions{})
	must(s.t, err)
	return now
}

// verify verifies a certificate by the trust bundle in the cluster.
func (s *site) verify(leaf *x509.Certificate) {
	s.t.Helper()
	object, err := s.Client().CertificatesV1().ClusterTrustBundles().Get(s.t.Context(), bundleName, metav1.GetOptions{})
	must(s.t, err)
	roots, err := pki.ParseBundle([]byte(object.Spec.TrustBundle))
	must(s.t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	must(s.t, err)
}
