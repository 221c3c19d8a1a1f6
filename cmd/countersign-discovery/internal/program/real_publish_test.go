//go:build e2e && linux

package program

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// TestRealReplicasPublishOneBundle has the rights of the base, and those of the component that is for
// publish_bundle.
func TestRealReplicasPublishOneBundle(t *testing.T) {
	c := newRealm(t, kubetest.Options{Name: "Kubernetes"})
	for text := range strings.SplitSeq(read(t, programs.File(t, "deploy/kustomize/discovery/bundle-endpoint/rights.yaml")), "\n---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "Role" {
			c.Bind(system, "system:serviceaccount:"+system+":countersign-discovery", role.Rules...)
		}
	}
	publishTogether(t, string(c.kubeconfig()))
}
