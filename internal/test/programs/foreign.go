package programs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Foreign returns what a variable such as COUNTERSIGN_ENVOY names: a program of others, or
// its folder, which scripts/with-programs installs. Without it the test is skipped, and fails
// where CI is set.
func Foreign(tb testing.TB, variable string) string {
	tb.Helper()
	proctest.NeedsProcess(tb)
	_ = os.Getenv("COUNTERSIGN_FOREIGN") // their hash, for Go's test cache
	path := os.Getenv(variable)
	switch {
	case path != "":
	case os.Getenv("CI") != "":
		tb.Fatalf("%s is not set: CI leaves no test out", variable)
	default:
		tb.Skipf("%s is not set: `make test` and `make check` set it", variable)
	}
	return path
}

// File returns the path of a file or folder of the repository. Tests use it for what lies
// outside of their module or is read by a program they start: Go's test cache does not see
// either change, but COUNTERSIGN_TREE, their hash.
func File(tb testing.TB, name string) string {
	tb.Helper()
	_ = os.Getenv("COUNTERSIGN_TREE")
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(root, filepath.FromSlash(name))
}
