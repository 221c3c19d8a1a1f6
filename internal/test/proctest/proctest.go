// Package proctest runs programs for tests: [Start]. What a test starts ends with it, together
// with whatever it started itself.
package proctest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/polling"
)

// Process is a started program. Its methods are safe for concurrent use, but for those that
// may fail the test: these belong to the test's goroutine.
type Process struct {
	// Log has its output, unless the command had one of its own.
	Log *logtest.Log

	cmd      *exec.Cmd
	patience time.Duration
	done     chan struct{} // closed when it has ended
	killed   sync.Once
}

// Patience is how long a program may take to end after [syscall.SIGTERM], on a busy machine.
const Patience = 30 * time.Second

// NeedsProcess skips a test that starts a program where -short leaves those out.
func NeedsProcess(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short leaves out tests that start programs")
	}
}

// Start starts a command in a process group of its own; see [NeedsProcess]. A command without a folder gets a
// [Folder], and one without an environment PATH and that folder as HOME and TMPDIR.
//
// When the test ends, the process gets SIGTERM; what has not ended after [Patience] fails the
// test and is killed. A log with a private key fails the test, too; the log of a failed test
// is shown without it.
func Start(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	NeedsProcess(tb)
	p := &Process{Log: &logtest.Log{}, cmd: cmd, patience: Patience, done: make(chan struct{})}
	p.prepare(tb)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	tb.Cleanup(func() { p.end(tb) })
	return p
}

func (p *Process) prepare(tb testing.TB) {
	tb.Helper()
	if p.cmd.Dir == "" {
		p.cmd.Dir = Folder(tb)
	}
	if p.cmd.Env == nil {
		p.cmd.Env = Environ(p.cmd.Dir)
	}
	if p.cmd.Stdout == nil {
		p.cmd.Stdout = p.Log
	}
	if p.cmd.Stderr == nil {
		p.cmd.Stderr = p.Log
	}
	p.cmd.WaitDelay = 5 * time.Second
	own(p.cmd)
}

// Folder returns a folder that is removed when the test ends. Its path is shorter than that
// of [testing.TB.TempDir], as the path of a Unix socket is limited to about 100 bytes.
func Folder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cs")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The ports of [FreeAddress] are below 32768: from there on, Linux gives them to processes that ask for
// any port, and one could be gone before a test's program listens.
const lowestPort, ports = 20_000, 10_000

var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32N(ports)) } // processes run side by side

// FreeAddress returns one of 127.0.0.1 at which nothing listens at the moment, another one at each call.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	var err error
	for range ports {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowestPort+lastPort.Add(1)%ports)); err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	tb.Fatal(err)
	return ""
}

// FreePort returns one of 127.0.0.1 at which nothing listens at the moment.
func FreePort(tb testing.TB) string {
	tb.Helper()
	_, port, _ := net.SplitHostPort(FreeAddress(tb))
	return port
}

// Environ returns the environment of a program that works in a folder.
func Environ(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
}

// PID returns the process ID, which may be another's after Done.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports how the process ended, or nil while it runs.
func (p *Process) Ended() *os.ProcessState {
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Until is [polling.Until] for what the process does: the test fails at its end, too.
func (p *Process) Until(tb testing.TB, limit time.Duration, what string, holds func() bool, show ...func() string) {
	tb.Helper()
	polling.Until(tb, limit, what, func() bool {
		done := holds()
		if !done && p.Ended() != nil {
			tb.Fatalf("%s ended before %s\n%s", p, what, tail(p.Log.String()))
		}
		return done
	}, append(show, func() string { return tail(p.Log.String()) })...)
}

// Signal sends a signal to the process, unless it has ended. After a SIGSTOP it waits until the
// process runs no more.
func (p *Process) Signal(s os.Signal) {
	if p.Ended() == nil {
		_ = p.cmd.Process.Signal(s)
		settle(p.cmd.Process, s, p.patience)
	}
}

// Stop sends a signal and waits for the end. It reports false where the process had to be
// killed after [Patience].
func (p *Process) Stop(s os.Signal) bool {
	p.Signal(s)
	select {
	case <-p.done:
		return true
	case <-time.After(p.patience):
		p.Kill()
		return false
	}
}

// Kill kills the process and its group, and waits for the end.
func (p *Process) Kill() {
	p.killed.Do(func() { killGroup(p.cmd.Process) })
	<-p.done
}

func (p *Process) end(tb testing.TB) {
	tb.Helper()
	resume(p.cmd.Process)
	if !p.Stop(syscall.SIGTERM) {
		tb.Errorf("%s did not end within %s of SIGTERM", p, p.patience)
	}
	p.Kill() // what it left in its group
	text := p.Log.String()
	if strings.Contains(text, "PRIVATE KEY") {
		tb.Errorf("%s has logged a key", p)
	}
	if tb.Failed() {
		tb.Logf("the log of %s:\n%s", p, tail(text))
	}
}

// String names the process for a test's messages.
func (p *Process) String() string {
	return fmt.Sprintf("%s (pid %d)", filepath.Base(p.cmd.Path), p.cmd.Process.Pid)
}

var privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)

// tail returns the last lines, without private keys.
func tail(text string) string {
	text = privateKey.ReplaceAllString(text, "(a private key)")
	return text[max(0, len(text)-8192):]
}
