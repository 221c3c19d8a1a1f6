//go:build e2e

package real_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// home and us are the namespace and the service account of the manifests.
const home, us = "countersign", "countersign-ra"

// client returns a client with the rights of the registration authority, and no others.
func (s *site) client() kubernetes.Interface {
	s.t.Helper()
	return s.ClientFor(s.Account(home, us))
}

// applyRights applies the rights and the admission policy that operators apply.
func applyRights(t testing.TB, c *kubetest.Cluster) {
	t.Helper()
	c.Namespace(home)
	applyManifests(t, c, "resources: [BASE/rights]\ncomponents: [BASE/requests, BASE/approval]\n")
	// The manifests are for one signer. The bound rule is also seen once those before it are.
	c.Bind("", "system:serviceaccount:"+home+":"+us, rbacv1.PolicyRule{
		APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{byHand}, Verbs: []string{"sign"},
	})
}

// applyManifests applies a kustomization as operators do; BASE is the base's folder.
func applyManifests(t testing.TB, c *kubetest.Cluster, kustomization string) {
	t.Helper()
	folder := t.TempDir()
	base, err := filepath.Rel(folder, programs.File(t, "deploy/kustomize/ra")) // kustomize takes no absolute path
	must(t, err)
	write(t, folder, "kustomization.yaml", strings.ReplaceAll(kustomization, "BASE", base))
	write(t, folder, "kubeconfig", string(c.AdminKubeconfig()))
	cmd := exec.Command(filepath.Join(programs.Foreign(t, "COUNTERSIGN_KUBERNETES"), "kubectl"), "apply", "--kubeconfig=kubeconfig", "-k", ".")
	cmd.Dir, cmd.Env = folder, []string{"HOME=" + folder}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

func write(t testing.TB, folder, name, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
}
