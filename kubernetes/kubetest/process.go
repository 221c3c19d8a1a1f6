//go:build linux

package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// run starts a program that appends to a log, and kills it when the test ends. A failed test
// keeps the log among its artifacts and prints its end.
func run(tb testing.TB, log, program string, args ...string) *proctest.Process {
	tb.Helper()
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(tb, err)
	defer output.Close()
	cmd := exec.Command(program, args...) //nolint:gosec // the programs of COUNTERSIGN_KUBERNETES
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(log), output, output
	p, artifacts := proctest.Start(tb, cmd), tb.ArtifactDir()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			keepLog(tb, log, artifacts)
		}
	})
	return p
}

const shown = 4096 // bytes of a log

func keepLog(tb testing.TB, log, folder string) {
	tb.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		tb.Log(err)
		return
	}
	if err := os.WriteFile(filepath.Join(folder, filepath.Base(log)), text, 0o600); err != nil {
		tb.Log(err)
	}
	tb.Logf("the end of %s:\n%s", filepath.Base(log), text[max(0, len(text)-shown):])
}
