//go:build e2e && linux

package deploy_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// reader is an operator who follows docs/pod-certificates.md.
type reader struct {
	cluster  *kubetest.Cluster
	node     *kubetest.Node
	vault    *vault
	commands []string // the page's blocks of shell
	folder   string   // where they run
	env      []string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{cluster: kubetest.Start(t, kubetest.Options{Nodes: true}), vault: startVault(t), folder: t.TempDir()}
	r.cluster.Controllers()
	r.node = r.cluster.HollowNode("one")
	commands, env := r.vault.command(t)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, r.cluster.AdminKubeconfig(), 0o600))
	path := []string{commands, programs.Foreign(t, "COUNTERSIGN_KUBERNETES"), filepath.Dir(programs.Foreign(t, "COUNTERSIGN_OPENSSL")), os.Getenv("PATH")}
	r.env = slices.Concat(env, []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + config, "PATH=" + strings.Join(path, ":")})
	r.commands, _ = docsPage(t, "pod-certificates.md", "sh")
	if len(r.commands) != 8 {
		t.Fatalf("the page has %d blocks of commands", len(r.commands))
	}
	r.writeFiles(t)
	return r
}

// writeFiles writes the page's files, each of which begins with its name. The base is this tree's.
func (r *reader) writeFiles(t *testing.T) {
	t.Helper()
	base, err := filepath.Rel(r.folder, programs.File(t, "deploy/kustomize"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.folder, "vault-root.pem"), r.vault.root, 0o600))
	files, _ := docsPage(t, "pod-certificates.md", "yaml")
	for _, text := range files {
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		text = strings.ReplaceAll(text, "github.com/countersign-dev/countersign/deploy/kustomize", base)
		must(t, os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o600))
	}
}

// run runs commands as the operator does, and returns what they print.
func (r *reader) run(t *testing.T, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = r.folder, r.env
	out := done(t, cmd)
	if strings.Contains(out, "Warning") {
		t.Errorf("%s\n%s", commands, out)
	}
	return out
}

// outside tells Vault where the API server is, and who reviews tokens: it runs outside of the
// cluster here.
func (r *reader) outside(t *testing.T, commands string) string {
	t.Helper()
	account := r.cluster.ServiceAccount("vault", "vault")
	r.cluster.Bind("", account, rbacv1.PolicyRule{APIGroups: []string{authenticationv1.GroupName}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}})
	return elsewhere(t, commands, map[string]string{"kubernetes_host=https://kubernetes.default.svc": fmt.Sprintf(
		"kubernetes_host=%s kubernetes_ca_cert='%s' token_reviewer_jwt=%s", r.cluster.URL, r.cluster.CA, r.cluster.Token("vault", "vault"))})
}

// startPod runs the pod that the operator has deployed, with the files that its volumes have.
// It returns the address of its status.
func (r *reader) startPod(t *testing.T) (*pod, string) {
	t.Helper()
	text := r.run(t, "kubectl kustomize .")
	spec, config := deployment(t, text, "ra.yaml")
	probes, status := proctest.FreeAddress(t), proctest.FreeAddress(t)
	config = elsewhere(t, config, map[string]string{
		vaultHost + ":8200": vaultHost + ":" + r.vault.port,
		`probes: ":15021"`:  fmt.Sprintf("probes: %q, address: %q", probes, status),
	})
	token := r.cluster.Token(raNamespace, raAccount, spec.Volumes[2].Projected.Sources[0].ServiceAccountToken.Audience)
	server, err := url.Parse(r.cluster.URL)
	must(t, err)
	p := newPod(t, image(t, "countersign", "countersign-ra", "countersign-provider-vault"), spec, map[string]map[string]string{
		"config": {"ra.yaml": config, "vault-root.pem": string(r.vault.root)}, "tokens": {"vault": token},
	}, "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	p.file(t, "/etc/hosts", "127.0.0.1 localhost "+vaultHost+"\n")
	p.project(t, ofAccount, map[string]string{"token": r.cluster.Token(raNamespace, raAccount), "ca.crt": string(r.cluster.CA), "namespace": raNamespace})
	p.run(t, slices.Concat(spec.Containers[0].Command, spec.Containers[0].Args)...).ready(t, probes)
	return p, status
}

// schedule puts the page's pod on the node: there is no scheduler.
func (r *reader) schedule(t *testing.T) *corev1.Pod {
	t.Helper()
	pods := r.cluster.Client().CoreV1().Pods("shop")
	must(t, pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0"}, Target: corev1.ObjectReference{Kind: "Node", Name: r.node.Name},
	}, metav1.CreateOptions{}))
	pod, err := pods.Get(t.Context(), "web-0", metav1.GetOptions{})
	must(t, err)
	return pod
}

func TestRealPodCertificatesPageLeadsToARunningPod(t *testing.T) {
	r := newReader(t)
	r.run(t, r.commands[0])
	r.run(t, r.outside(t, r.commands[1]))
	r.run(t, r.commands[2])
	program, status := r.startPod(t)
	r.run(t, r.commands[3])
	pod := r.schedule(t)
	r.cluster.AwaitRunning(pod)
	r.verifyFiles(t, pod)
	if seen := r.run(t, r.commands[4]); !strings.Contains(seen, "example.com:mesh:bundle") || !strings.Contains(seen, "example.com/mesh") {
		t.Errorf("the last commands show\n%s", seen)
	}
	r.moveHere(t)
	tried, _ := docsPage(t, "pod-certificates.md", "")
	for _, test := range tried {
		if args := strings.Fields(strings.Replace(test, "ra.yaml", "/etc/countersign/ra.yaml", 1)); args[0] == raAccount {
			if got := done(t, program.command(t.Context(), append([]string{"/usr/bin/countersign-ra"}, args[1:]...)...)); !strings.Contains(got, "spiffe://cluster.local/ns/shop/sa/web") {
				t.Errorf("%s\n%s", test, got)
			}
		}
	}
	if got := done(t, program.command(t.Context(), "/usr/bin/countersign-ra", "status", "--address", status)); !strings.Contains(got, "No problems") {
		t.Errorf("the status is\n%s", got)
	}
}

// The page has exactly the reasons that the doors give.
func TestPodCertificatesPageHasEachReason(t *testing.T) {
	_, page := docsPage(t, "pod-certificates.md", "")
	_, ofPods, _ := strings.Cut(page, "\n## How a request ends\n")
	ofPods, _, _ = strings.Cut(ofPods, "\n## ")
	_, ofOthers, _ := strings.Cut(page, "\n## CertificateSigningRequests\n")
	ofOthers, _, _ = strings.Cut(ofOthers, "\n## ")
	for door, table := range map[string]string{"podcert": ofPods, "csr": ofOthers} {
		code, err := os.ReadFile(programs.File(t, "kubernetes/signing/"+door+"/judge.go"))
		must(t, err)
		var want, got []string
		for _, m := range regexp.MustCompile(`(?m)^\treason\w+ += (?:"(\w+)"|certificatesv1\.(\w+))$`).FindAllStringSubmatch(string(code), -1) {
			want = append(want, cmp.Or(m[1], map[string]string{
				"PodCertificateRequestConditionUnsupportedKeyType": certificatesv1.PodCertificateRequestConditionUnsupportedKeyType,
				"PodCertificateRequestConditionInvalidUserConfig":  certificatesv1.PodCertificateRequestConditionInvalidUserConfig,
			}[m[2]]))
		}
		for _, m := range regexp.MustCompile("(?m)^\\| (?:`(?:Denied|Failed)` \\| )?`(\\w{7,})` \\|").FindAllStringSubmatch(table, -1) {
			got = append(got, m[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the page has the reasons %q, want %q", door, got, want)
		}
	}
}

// verifyFiles verifies what the pod mounts as its program and its peers do.
func (r *reader) verifyFiles(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	volume := pod.Spec.Volumes[0]
	read := func(name string) []byte {
		content, err := r.node.ReadFile(pod, volume.Name, name)
		must(t, err)
		return content
	}
	source := volume.Projected.Sources[0].PodCertificate
	credentials := read(cmp.Or(source.CredentialBundlePath, source.CertificateChainPath))
	pair, err := tls.X509KeyPair(credentials, read(cmp.Or(source.CredentialBundlePath, source.KeyPath)))
	must(t, err)
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(read(volume.Projected.Sources[1].ClusterTrustBundle.Path))
	chain.AppendCertsFromPEM(credentials)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		verified, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{usage}})
		must(t, err)
		if root := verified[0][len(verified[0])-1]; root.Subject.CommonName != "Example root" {
			t.Errorf("the root is %s", root.Subject)
		}
	}
	if ids := pair.Leaf.URIs; len(ids) != 1 || ids[0].String() != "spiffe://cluster.local/ns/shop/sa/web" || len(pair.Leaf.DNSNames) > 0 {
		t.Errorf("it is for %s, %s", ids, pair.Leaf.DNSNames)
	}
}
