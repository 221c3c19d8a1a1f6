// Package testkit (for authors of providers) helps to test a provider, beside the conformance
// suite in sdk/catest/conformance.
//
// In the test's own process, [Request] makes a signing request and [Check] and [Passes]
// verify the reply as an agent does; [Fails] verifies an error. [Log] collects log output.
//
// As a process, [Start] runs the provider's binary under a stock go-plugin host, and
// [StartAgent] under `countersign agent`, which serves the secret "default" on a Unix
// socket; [Agent.Watch] follows its rotations. Both end with the test.
//
// The programs come from the folder that COUNTERSIGN_PROGRAMS names. Without that variable,
// they are built inside the Countersign repository, and found on PATH elsewhere: see
// [Program].
package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// Program returns the path of a program, such as "countersign". It looks in the folder that
// COUNTERSIGN_PROGRAMS names. Without that variable it builds the program where the working
// directory is inside the Countersign repository, so that an installed program is never
// tested instead of the working tree; elsewhere it looks on PATH.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	if os.Getenv("COUNTERSIGN_PROGRAMS") != "" || inRepository() {
		return programs.Path(tb, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("%v (or set COUNTERSIGN_PROGRAMS to the folder of %s)", err, name)
	}
	return path
}

func inRepository() bool {
	root, err := programs.Root()
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(root, "scripts", "programs"))
	return err == nil
}

// Run runs a [Program] for at most five minutes and returns its output. The test fails
// unless it exits with 0.
func Run(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := exec.CommandContext(Within(tb, 5*time.Minute), Program(tb, name), args...).CombinedOutput() //nolint:gosec // built by the tests
	if err != nil {
		tb.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
