//go:build e2e

package real_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// home and us are the namespace and the service account of the manifests.
const home, us = "countersign", "countersign-ra"

// client returns a client with the rights of the registration authority, and no others.
func (o *office) client() kubernetes.Interface {
	o.t.Helper()
	return o.ClientFor(o.Account(home, us))
}

// applyRights applies the rights and the admission policy that operators apply.
func applyRights(t testing.TB, c *kubetest.Cluster) {
	t.Helper()
	c.Namespace(home)
	folder := t.TempDir()
	ra, err := filepath.Rel(folder, programs.File(t, "deploy/kustomize/ra")) // kustomize takes no absolute path
	must(t, err)
	write(t, folder, "kustomization.yaml", fmt.Sprintf("resources: [%[1]s/rights]\ncomponents: [%[1]s/requests, %[1]s/approval]\n", ra))
	write(t, folder, "kubeconfig", string(c.AdminKubeconfig()))
	cmd := exec.Command(filepath.Join(programs.Foreign(t, "COUNTERSIGN_KUBERNETES"), "kubectl"), "apply", "--kubeconfig=kubeconfig", "-k", ".")
	cmd.Dir, cmd.Env = folder, []string{"HOME=" + folder}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	// The manifests are for one signer. The bound rule is also seen once those before it are.
	c.Bind("", "system:serviceaccount:"+home+":"+us, rbacv1.PolicyRule{
		APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{byHand}, Verbs: []string{"sign"},
	})
}

func write(t testing.TB, folder, name, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
}
