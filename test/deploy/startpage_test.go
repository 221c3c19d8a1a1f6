//go:build e2e

package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// startPage returns the fenced blocks of docs/start-kubernetes.md in a language, and its text.
func startPage(t *testing.T, language string) (blocks []string, text string) {
	t.Helper()
	return docsPage(t, "start-kubernetes.md", language)
}

func docsPage(t *testing.T, name, language string) (blocks []string, text string) {
	t.Helper()
	page, err := os.ReadFile(programs.File(t, "docs/"+name))
	must(t, err)
	for _, block := range regexp.MustCompile("(?s)```(\\w*)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if block[1] == language {
			blocks = append(blocks, block[2])
		}
	}
	return blocks, string(page)
}

// The namespace is Istio's, which an operator has already.
func TestRealAPIServerAcceptsStartPageCommands(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	restricted(t, c, "istio-system")
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, c.AdminKubeconfig(), 0o600))
	blocks, _ := startPage(t, "")
	applied := 0
	for line := range strings.Lines(strings.Join(blocks, "")) {
		if !strings.HasPrefix(line, "kubectl ") {
			continue
		}
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir = programs.File(t, ".")
		cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + config, "PATH=" + programs.Foreign(t, "COUNTERSIGN_KUBERNETES")}
		if out := done(t, cmd); strings.Contains(out, "Warning") || !strings.Contains(out, "created") && !strings.Contains(out, "unchanged") {
			t.Errorf("%s%s", line, out)
		}
		applied++
	}
	if applied != 2 {
		t.Errorf("the page applies %d kustomizations", applied)
	}
}

func TestStartPageSidecarBuilds(t *testing.T) {
	blocks, _ := startPage(t, "yaml")
	const published = "github.com/countersign-dev/countersign/deploy/kustomize"
	if len(blocks) != 1 || !strings.Contains(blocks[0], published+"/sidecar") {
		t.Fatalf("the page has %q", blocks)
	}
	text := built(t, strings.ReplaceAll(blocks[0], published, "BASE"), map[string]string{"deployment.yaml": gateway})
	for _, o := range objects(t, text, "Deployment") {
		var d appsv1.Deployment
		must(t, json.Unmarshal(o.text, &d))
		if d.Name != "gateway" {
			continue
		}
		if sidecars := d.Spec.Template.Spec.InitContainers; len(sidecars) != 1 || sidecars[0].Image != "registry.example.org/countersign:0.1.0" {
			t.Errorf("the sidecar: %+v", sidecars)
		}
		return
	}
	t.Errorf("no Deployment has a sidecar:\n%s", text)
}

// What the text asks for inline is in the programs' help.
func TestStartPageCommandsExist(t *testing.T) {
	_, page := startPage(t, "")
	commands := regexp.MustCompile("`(countersign(?:-discovery)?)((?: [a-z]+)+)((?: --[a-z-]+)*)[^`]*`").FindAllStringSubmatch(page, -1)
	if len(commands) < 2 {
		t.Fatalf("only %q are found", commands)
	}
	for _, command := range commands {
		help := done(t, exec.Command(programs.Path(t, command[1]), append(strings.Fields(command[2]), "--help")...))
		if !strings.Contains(help, "\n  "+command[1]+command[2]) {
			t.Errorf("%s: the help is another command's:\n%s", command[0], help)
		}
		for flag := range strings.FieldsSeq(command[3]) {
			if !strings.Contains(help, flag+" ") {
				t.Errorf("%s has no %s", command[0], flag)
			}
		}
	}
}
