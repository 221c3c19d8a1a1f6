//go:build e2e

package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// before is a file of the chart's release before this one: the objects that it made of an example,
// or the values of that example. docs/versioning.md says when they are replaced.
func before(t *testing.T, name string) string {
	return programs.File(t, "deploy/helm/testdata/before/"+name+".yaml")
}

// releasedBefore is a chart that makes the very objects of the release before.
func releasedBefore(t *testing.T, example string) string {
	t.Helper()
	text, err := os.ReadFile(before(t, example))
	must(t, err)
	if strings.Contains(string(text), "{{") {
		t.Fatalf("the objects of %s would be taken for templates", example)
	}
	folder := t.TempDir()
	must(t, os.Mkdir(filepath.Join(folder, "templates"), 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "Chart.yaml"), []byte("apiVersion: v2\nname: countersign\nversion: 0.0.1\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "templates", "all.yaml"), text, 0o600))
	return folder
}

// Who installed the release before upgrades to this one with the values of then: Helm patches each
// object in its place, and the API server refuses another selector, for one, or another role of a
// binding. A rollback, which patches in the other direction, is let through as well.
func TestRealChartUpgradesTheReleaseBefore(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, c.AdminKubeconfig(), 0o600))
	for _, row := range []struct {
		example, release, namespace string
		next                        []string
	}{
		{"ra", "countersign", chartExamples["ra"], []string{chart(t), "-f", before(t, "ra-values")}},
		{"discovery", "countersign", chartExamples["discovery"], []string{chart(t), "-f", before(t, "discovery-values")}},
		{"node", "countersign", chartExamples["node"], []string{chart(t), "-f", before(t, "node-values")}},
		{"web", "web", "shop", []string{web(t)}},
	} {
		c.Namespace(row.namespace)
		run := func(args ...string) string {
			t.Helper()
			return helmed(t, append(args, "--kubeconfig", config, "--namespace", row.namespace)...)
		}
		run("install", row.release, releasedBefore(t, row.example))
		first := identities(t, config, run("get", "manifest", row.release))
		run(append([]string{"upgrade", row.release}, row.next...)...)
		second := identities(t, config, run("get", "manifest", row.release))
		if len(first) == 0 {
			t.Errorf("%s: nothing was installed", row.example)
		}
		for object, uid := range first {
			if second[object] != uid {
				t.Errorf("%s: the upgrade removes %s, or makes another: it was %q and is %q", row.example, object, uid, second[object])
			}
		}
		run("rollback", row.release, "1")
	}
}

// identities are the UIDs of what the API server has of a manifest.
func identities(t *testing.T, config, manifest string) map[string]types.UID {
	t.Helper()
	var list struct{ Items []object }
	must(t, json.Unmarshal([]byte(kubectl(t, manifest, "get", "--kubeconfig", config, "-f", "-", "-o", "json")), &list))
	all := map[string]types.UID{}
	for _, o := range list.Items {
		all[o.Kind+" "+o.Metadata.Name] = o.Metadata.UID
	}
	return all
}
