//go:build unix

package command_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/internal/test/polling"
)

// patience is how long a test waits for what real processes do.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shell runs a line, with the PATH alone.
func shell(line string) command.Program {
	return command.Program{Args: []string{"sh", "-c", line}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

func logged(t *testing.T, p command.Program) (log string, err error) {
	t.Helper()
	var text bytes.Buffer
	err = p.RunLogged(t.Context(), slog.New(slog.NewTextHandler(&text, nil)))
	return text.String(), err
}

func TestProgramRunsWithoutShellAndLogIsEscaped(t *testing.T) {
	log, err := logged(t, command.Program{Args: []string{"echo", "$HOME;", "a\x1bb"}})
	if err != nil || !strings.Contains(log, `$HOME; a\\x1bb`) {
		t.Errorf("%v, the log is %q", err, log)
	}
	log, err = logged(t, shell("yes | head -c 1000000; yes | head -c 100000 | tr -d '\\n' >&2"))
	if n := strings.Count(log, "command output"); err != nil || n != 20 {
		t.Errorf("%v, %d lines were logged", err, n)
	}
}

func TestProgramInheritsNoEnvironment(t *testing.T) {
	t.Setenv("A_SECRET", "geheim")
	out := &command.Head{Most: 1 << 20}
	err := command.Program{Args: []string{"/usr/bin/env"}}.Run(t.Context(), out, out)
	if err != nil || len(out.Bytes()) > 0 {
		t.Errorf("%v, %d bytes of environment", err, len(out.Bytes()))
	}
}

func TestFailingOrHangingProgramIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	if _, err := logged(t, shell("exit 3")); err == nil || err.Error() != `"sh" failed: exit status 3` {
		t.Errorf("got %v", err)
	}
	if _, err := logged(t, command.Program{Args: []string{"/no/such"}}); err == nil || !strings.Contains(err.Error(), `"/no/such" failed: `) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := shell("sleep 1000 & wait").RunLogged(ctx, slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "timed out and was killed") || time.Since(began) > patience {
		t.Errorf("got %v after %s", err, time.Since(began))
	}
}

// leftBehind runs a shell that leaves a sleep, and returns its number.
func leftBehind(t *testing.T, killRest bool) (pid int, err error) {
	t.Helper()
	p := shell("sleep 1000 & echo $!")
	p.KillRest = killRest
	out := &command.Head{Most: 100}
	err = p.Run(t.Context(), out, out)
	pid, wrong := strconv.Atoi(strings.TrimSpace(string(out.Bytes())))
	if wrong != nil {
		t.Fatal(wrong)
	}
	return pid, err
}

func TestLeftoverProcessesRunOnUnlessKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	pid, err := leftBehind(t, false)
	if !errors.Is(err, command.ErrLeftBehind) || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Errorf("got %v, and it has gone", err)
	}
	if pid, err = leftBehind(t, true); !errors.Is(err, command.ErrLeftBehind) {
		t.Errorf("got %v", err)
	}
	polling.Until(t, patience, "it has ended", func() bool { return !running(pid) })
	if _, err := logged(t, shell("sleep 0.6 & echo daemon")); err != nil {
		t.Errorf("a daemon counts as a failure: %v", err)
	}
}

// A process that holds no output of its own is ended, too.
func TestQuietLeftoverProcessEnds(t *testing.T) {
	p := shell("sleep 1000 >/dev/null 2>&1 & echo $!")
	p.KillRest = true
	out, err := p.Output(t.Context(), 100)
	pid, wrong := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	polling.Until(t, patience, "it has ended", func() bool { return !running(pid) })
}

func TestFloodIsReadSlowly(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var written counter
	began := time.Now()
	if err := shell("yes >&2").Run(ctx, &command.Head{}, &written); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	took := time.Since(began) // a busy machine kills the program late
	if most := 3 * (512 << 10) * int(1+took/(50*time.Millisecond)); int(written) > most {
		t.Errorf("%d bytes were read in %s, want %d at most", written, took, most)
	}
}

type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// running reports whether a process is there and not a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestHeadReportsOverflowOnce(t *testing.T) {
	told := 0
	h := &command.Head{Most: 3, Full: func() { told++ }}
	for _, text := range []string{"ab", "cd", "ef"} {
		if n, err := h.Write([]byte(text)); n != 2 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	if string(h.Bytes()) != "abc" || !h.Over() || told != 1 {
		t.Errorf("it has %q, over %t, notified %d times", h.Bytes(), h.Over(), told)
	}
}
