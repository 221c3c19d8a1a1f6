//go:build e2e

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Helm renders the packed chart as it renders the folder, for all examples.
func TestRealHelmTakesPackedChart(t *testing.T) {
	folder := filepath.Join(root(t), "deploy/helm")
	examples, err := filepath.Glob(filepath.Join(folder, "examples/*.yaml"))
	must(t, err)
	if len(examples) < 5 {
		t.Errorf("only %d examples", len(examples))
	}
	packed := packedChart(t)
	for _, values := range examples {
		if got, want := templated(t, values, packed), templated(t, values, filepath.Join(folder, "countersign")); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", values, got, want)
		}
	}
}

// Helm takes the chart out of a registry as it takes the folder.
func TestRealHelmTakesChartOfRegistry(t *testing.T) {
	folder := filepath.Join(root(t), "deploy/helm")
	packed := packedChart(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	write, err := (&pusher{from: filepath.Dir(packed), registry: at + "/mirror"}).chart(packed)
	must(t, err)
	must(t, write())
	values := filepath.Join(folder, "examples/ra.yaml")
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(packed), "countersign-"), ".tgz")
	if got, want := templated(t, values, "oci://"+at+"/mirror/charts/countersign", "--version", version, "--plain-http"), templated(t, values, filepath.Join(folder, "countersign")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// From nothing to a DaemonSet: a release is pushed, and its chart installed with the values that the
// push wrote. A test of the module test runs it beside an API server of its own.
func TestChartOfRegistryInstalls(t *testing.T) {
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("KUBECONFIG is not set: TestRealChartOfPushedRelease in test/deploy runs this")
	}
	d, _ := smallRelease(t)
	at, text := pushed(t, d.out)
	values := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(values, []byte(text), 0o600))
	cmd := exec.Command(program(t, "COUNTERSIGN_HELM"), "install", "node", "oci://"+at+"/mirror/charts/countersign", "--version", "0.1.0", "--plain-http",
		"--namespace", "countersign-node", "--create-namespace", "--values", filepath.Join(root(t), "deploy/helm/examples/node.yaml"), "--values", values)
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + kubeconfig}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "STATUS: deployed") {
		t.Fatalf("%v\n%s", err, out)
	}
	shown, err := exec.Command(filepath.Join(program(t, "COUNTERSIGN_KUBERNETES"), "kubectl"), "--kubeconfig", kubeconfig, "--namespace", "countersign-node",
		"get", "daemonset", "--output", "jsonpath={.items[0].spec.template.spec.containers[0].image}").Output()
	must(t, err)
	image, err := name.NewDigest(string(shown))
	must(t, err)
	if _, err := remote.Get(image); err != nil || !strings.HasPrefix(string(shown), at+"/mirror/countersign@") {
		t.Errorf("the registry does not have %s: %v", shown, err)
	}
}

// templated renders a chart with the real Helm.
func templated(t *testing.T, values, chart string, flags ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(program(t, "COUNTERSIGN_HELM"), append([]string{"template", "countersign", chart, "--values", values}, flags...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOME=" + t.TempDir()}, &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, errs.String())
	}
	return out.String()
}
