// Package programtest lets the binary of a program's tests be the program, too: [Main] is for
// TestMain, and [Command] starts the program.
package programtest

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// asProgram as the first argument makes the tests' binary the program.
const asProgram = "be-the-program"

// Main runs the program if [Command] has started the process, and otherwise the tests.
func Main(m *testing.M, run cli.Program) {
	if len(os.Args) > 1 && os.Args[1] == asProgram {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Main(run))
	}
	proctest.Overlap(8)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

// Command returns the program with arguments.
func Command(ctx context.Context, tb testing.TB, env environ.Vars, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{asProgram}, args...)...) //nolint:gosec // itself
	cmd.Env = env
	return cmd
}

// Environment returns one of the program's own, with these providers.
func Environment(tb testing.TB, providers ...string) environ.Vars {
	tb.Helper()
	return environ.Vars{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "COUNTERSIGN_PROVIDER_PATH=" + programs.Folder(tb, providers...), "TMPDIR=" + os.TempDir()}
}
