//go:build e2e

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
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
