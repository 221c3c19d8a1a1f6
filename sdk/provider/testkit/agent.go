package testkit

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Agent is a running `countersign agent`. It is used by the test's goroutine alone.
type Agent struct {
	*Log
	tb     testing.TB
	socket string
}

// Folder returns a folder for an [Agent]. It is removed when the test ends. Its path is
// shorter than that of [testing.TB.TempDir], as the path of a Unix socket is limited to
// about 100 bytes.
func Folder(tb testing.TB) string {
	tb.Helper()
	return proctest.Folder(tb)
}

// FreeAddress returns an address of 127.0.0.1 at which nothing listens, for a program that a test starts. Its port
// is below those that Linux, by default, gives to processes that ask for any.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return proctest.FreeAddress(tb)
}

// StartAgent runs `countersign agent --dev` in a [Folder] until the test ends, with further
// arguments and environment variables. The agent finds the provider by its path, and serves
// on the socket "s" in the folder, which the arguments or the environment have to configure.
// The test fails if the agent does not exit with 0 within 30 seconds of SIGTERM.
func StartAgent(tb testing.TB, dir, provider string, args, environ []string) *Agent {
	tb.Helper()
	a := &Agent{&Log{}, tb, filepath.Join(dir, "s")}
	cmd := exec.Command(Program(tb, "countersign"), append([]string{"agent", "--dev"}, args...)...) //nolint:gosec // built by the tests
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, a.Log, a.Log
	cmd.Env = append(append(proctest.Environ(dir), "COUNTERSIGN_PROVIDER_PATH="+filepath.Dir(provider)), environ...)
	var p *proctest.Process
	tb.Cleanup(func() {
		if p == nil { // it was not started
			return
		}
		if code := p.Ended().ExitCode(); code != 0 {
			tb.Errorf("the agent exited with %d\n%s", code, a.Take())
		}
	})
	p = proctest.Start(tb, cmd)
	return a
}

// Watch waits for the agent to serve the secret "default" so many times, the current
// certificate and then each rotation, and returns the output of `countersign secrets watch`.
// It fails the test after two minutes.
func (a *Agent) Watch(count int) string {
	a.tb.Helper()
	defer func() {
		if a.tb.Failed() {
			a.tb.Logf("agent:\n%s", a.Take())
		}
	}()
	return Run(a.tb, "countersign", "secrets", "watch", "--socket", a.socket, "--for", "2m", "--count", strconv.Itoa(count), "default")
}
