//go:build e2e

package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "vault" {
		os.Exit(vaultMain())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

const deployDir = "../../deploy/kustomize"

// kubectl runs the program that operators have, and fails where it fails or warns.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs.Foreign(t, "COUNTERSIGN_KUBERNETES"), "kubectl"), args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	return stdout.String()
}

// built is what a kustomization in a folder of its own makes.
func built(t *testing.T, kustomization string, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	base, err := filepath.Abs(deployDir)
	must(t, err)
	base, err = filepath.Rel(folder, base) // kustomize takes no absolute path
	must(t, err)
	write := func(name, content string) {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	write("kustomization.yaml", strings.ReplaceAll(kustomization, "BASE", base))
	for name, content := range files {
		write(name, content)
	}
	return kubectl(t, "", "kustomize", folder)
}

// apply has the API server take what was built, with every field known to it.
func apply(t *testing.T, c *kubetest.Cluster, text string, flags ...string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, c.AdminKubeconfig(), 0o600))
	args := []string{"apply", "--kubeconfig", config, "--server-side", "--validate=strict", "-f", "-"}
	kubectl(t, text, append(args, flags...)...)
}

// object is one that was built.
type object struct {
	Kind     string
	Metadata metav1.ObjectMeta
	text     []byte // JSON
}

// objects are those of one kind, or all.
func objects(t *testing.T, text, kind string) (of []object) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return of
		} else if err != nil {
			t.Fatal(err)
		}
		o := object{text: raw}
		must(t, json.Unmarshal(raw, &o))
		if kind == "" || o.Kind == kind {
			of = append(of, o)
		}
	}
}

// restricted makes a namespace where only pods run that are as harmless as Kubernetes asks
// of them, and where who makes them is warned.
func restricted(t *testing.T, c *kubetest.Cluster, name string) {
	t.Helper()
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
	_, err := c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
}

// runsRestricted has the server try the pods of all Deployments.
func runsRestricted(t *testing.T, c *kubetest.Cluster, text, namespace string) {
	t.Helper()
	deployments := objects(t, text, "Deployment")
	if len(deployments) == 0 {
		t.Error("there is no Deployment")
	}
	for _, o := range deployments {
		var d appsv1.Deployment
		must(t, json.Unmarshal(o.text, &d))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: d.Spec.Template.Spec}
		_, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("a pod of %s: %v", d.Name, err)
		}
	}
}

const sidecarOfAGateway = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: mesh
resources: [gateway.yaml]
components: [BASE/sidecar]
images: [{name: countersign, newName: example.org/countersign, newTag: "1"}]
`

const gateway = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: gateway, labels: {countersign.dev/sidecar: "true"}}
spec:
  selector: {matchLabels: {app: gateway}}
  template:
    metadata: {labels: {app: gateway}}
    spec:
      serviceAccountName: gateway
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: envoy
          image: example.org/envoy:1
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec:
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec:
      serviceAccountName: gateway
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: envoy
          image: example.org/envoy:1
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

const another = `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: mesh
resources: [BASE/discovery]
components: [BASE/discovery/bundle-endpoint]
images: [{name: countersign, newName: example.org/countersign, newTag: "1"}]
`

func TestRealAPIServerAcceptsManifests(t *testing.T) {
	c := kubetest.Start(t, kubetest.Options{})
	restricted(t, c, "istio-system")
	restricted(t, c, "mesh")
	for _, base := range []string{"discovery", "remote"} {
		text := built(t, "resources: [BASE/"+base+"]", nil)
		apply(t, c, text, "--dry-run=server")
		if base == "discovery" {
			runsRestricted(t, c, text, "istio-system")
		}
	}
	restricted(t, c, "countersign-node")
	needsTheNode(t, c, built(t, "resources: [BASE/node]", nil))
	for name, text := range map[string]string{
		"another namespace": built(t, another, nil), "a sidecar": built(t, sidecarOfAGateway, map[string]string{"gateway.yaml": gateway}),
	} {
		t.Run(name, func(t *testing.T) {
			apply(t, c, text, "--dry-run=server")
			runsRestricted(t, c, text, "mesh")
			if strings.Contains(text, "image: countersign") || strings.Contains(text, "namespace: istio-system") && name == "a sidecar" {
				t.Errorf("the overlay did not reach all of it:\n%s", text)
			}
		})
	}
}

func TestSidecarIsAddedToLabelledDeployments(t *testing.T) {
	for _, o := range objects(t, built(t, sidecarOfAGateway, map[string]string{"gateway.yaml": gateway}), "Deployment") {
		var d appsv1.Deployment
		must(t, json.Unmarshal(o.text, &d))
		has := len(d.Spec.Template.Spec.InitContainers) == 1 && len(d.Spec.Template.Spec.Containers) == 1 && len(d.Spec.Template.Spec.Volumes) == 5
		if has != (d.Name == "gateway") {
			t.Errorf("%s has a sidecar: %t", d.Name, has)
		}
	}
}

// done runs a command that has to succeed and returns what it prints.
func done(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

var must = fatal.If
