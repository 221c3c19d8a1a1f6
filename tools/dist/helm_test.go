//go:build e2e

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
)

// Helm renders the packed chart as it renders the folder, for all examples.
func TestRealHelmTakesPackedChart(t *testing.T) {
	helm, folder := program(t, "COUNTERSIGN_HELM"), filepath.Join(root(t), "deploy/helm")
	rendered := func(chart, values string) string {
		var out, errs bytes.Buffer
		cmd := exec.Command(helm, "template", "countersign", chart, "--values", values)
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOME=" + t.TempDir()}, &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, errs.String())
		}
		return out.String()
	}
	examples, err := filepath.Glob(filepath.Join(folder, "examples/*.yaml"))
	must(t, err)
	if len(examples) < 5 {
		t.Errorf("only %d examples", len(examples))
	}
	packed := packedChart(t)
	for _, values := range examples {
		if got, want := rendered(packed, values), rendered(filepath.Join(folder, "countersign"), values); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", values, got, want)
		}
	}
}
