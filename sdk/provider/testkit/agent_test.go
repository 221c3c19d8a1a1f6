//go:build unix

package testkit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// inAuthors is set in the test of a provider's author, outside of this repository.
const inAuthors = "TESTKIT_IN_AUTHORS"

func TestAgentOfAnAuthor(t *testing.T) {
	if os.Getenv(inAuthors) != "" {
		testkit.StartAgent(t, t.TempDir(), "/provider", nil, nil)
		return
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "countersign"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAgentOfAnAuthor$", "-test.v", "-test.short") //nolint:gosec // this program
	cmd.Dir, cmd.Env = dir, append(os.Environ(), inAuthors+"=1", "PATH="+dir, "COUNTERSIGN_PROGRAMS=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v: with -short, the test is not skipped:\n%s", err, out)
	}
}
