//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNewcomer does what the README says first, with what is committed.
func TestNewcomer(t *testing.T) {
	clone, temp := filepath.Join(t.TempDir(), "countersign"), t.TempDir()
	output(t, exec.Command("git", "clone", "--quiet", "../..", clone))
	becomeSubreaper(t)

	demo := exec.Command("make", "demo")
	demo.Dir, demo.Env = clone, newcomerEnv(temp)
	begin := time.Now()
	said := output(t, demo)
	t.Logf("make demo took %s", time.Since(begin)) // which depends on the machine, and on its caches
	for _, word := range []string{"rotated", "kill -9"} {
		if !strings.Contains(said, word) {
			t.Errorf("the demo shows nothing that is called %q:\n%s", word, said)
		}
	}
	poll(t, "the processes of the demo to be gone", func() bool { return len(children(t, os.Getpid())) == 0 }) // its providers follow
	if found := entries(t, temp); len(found) > 0 {
		t.Errorf("the demo left %v in the temp folder", found)
	}
	status := exec.Command("git", "status", "--porcelain")
	status.Dir = clone
	if changed := output(t, status); changed != "" {
		t.Errorf("the demo changed the checkout:\n%s", changed)
	}
}

// becomeSubreaper has orphans of our children become our children, until the test
// ends (PR_SET_CHILD_SUBREAPER(2const)).
func becomeSubreaper(t *testing.T) {
	t.Helper()
	set := func(on uintptr) error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0) }
	if err := set(1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set(0) })
}

// newcomerEnv is the environment without what only this project or CI sets.
func newcomerEnv(temp string) []string {
	env := []string{"TMPDIR=" + temp}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name != "CI" && name != "TMPDIR" && name != "MAKEFLAGS" && name != "MAKELEVEL" && !strings.HasPrefix(name, "COUNTERSIGN_") {
			env = append(env, entry)
		}
	}
	return env
}

// output runs a command, which must exit 0, and returns what it printed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}
