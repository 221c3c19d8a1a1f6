package output_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func waitForHangup() {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	_, _ = os.Stdout.WriteString("ready\n")
	select {
	case <-hangups:
		_, _ = os.Stdout.WriteString("hangup\n")
	case <-time.After(time.Minute):
	}
}

func TestOnlyIntendedProcessIsSignalled(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	line := make([]byte, len("ready\n"))
	_, err = out.Read(line)
	must(t, err)
	pidFile := filepath.Join(t.TempDir(), "pid")
	// PostgreSQL writes more below the number.
	must(t, os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)+"\n/var/lib/postgresql/15/main\n1790000000\n5432\n"), 0o600))
	good := output.Process{PIDFile: pidFile, Executable: self, UID: os.Getuid()}
	log := slog.New(slog.DiscardHandler)
	for says, p := range map[string]output.Process{
		"does not run /bin/sh": {PIDFile: pidFile, Executable: "/bin/sh", UID: good.UID},
		"to be user 4711":      {PIDFile: pidFile, Executable: self, UID: 4711},
		"no such file":         {PIDFile: pidFile + "x", Executable: self, UID: good.UID},
	} {
		if err := output.Signal(p, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
	pipe := pidFile + ".pipe"
	must(t, syscall.Mkfifo(pipe, 0o600))
	if err := output.Signal(output.Process{PIDFile: pipe, Executable: self}, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
	must(t, os.Chmod(pidFile, 0o666))
	if err := output.Signal(good, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("got %v", err)
	}
	must(t, os.Chmod(pidFile, 0o600), output.Signal(good, syscall.SIGHUP)(t.Context(), log))
	line = make([]byte, len("hangup\n"))
	if _, err := out.Read(line); err != nil || string(line) != "hangup\n" {
		t.Errorf("the process prints %q, %v", line, err)
	}
	must(t, cmd.Wait())
	if err := output.Signal(good, syscall.SIGHUP)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("got %v", err)
	}
}

// asSender in the environment makes the test binary an agent of another user, which signals the
// process of this PID file.
const asSender = "OUTPUT_TEST_SENDER"

func sendAsOther(pidFile string) {
	if os.Getenv("HIDDEN") != "" { // as ProtectProc=invisible of systemd does
		if err := syscall.Mount("proc", "/proc", "proc", 0, "hidepid=invisible"); err != nil {
			_, _ = os.Stdout.WriteString(err.Error())
			return
		}
	}
	drop := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
	process := output.Process{PIDFile: pidFile, Executable: "/usr/bin/sleep", UID: 0}
	err := errors.Join(drop, output.Signal(process, syscall.SIGHUP)(context.Background(), slog.New(slog.DiscardHandler)))
	_, _ = fmt.Println(err)
}

// What cannot be seen or signalled has not ended.
func TestHiddenProcessHasNotEnded(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root has a process of another user")
	}
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command("/usr/bin/sleep", "600")
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pidFile := filepath.Join(openDir(t), "pid")
	must(t, os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644))
	must(t, os.Chown(pidFile, 0, 0))
	for hidden, says := range map[string][]string{
		"":    {"executable", "CAP_SYS_PTRACE", "systemctl"},
		"yes": {"runs, and /proc hides it", "ProtectProc=", "CAP_SYS_PTRACE", "systemctl"},
	} {
		sender := exec.Command(self)
		sender.Env = append(os.Environ(), asSender+"="+pidFile, "HIDDEN="+hidden)
		sender.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		said, err := sender.Output()
		must(t, err)
		for _, want := range says {
			if !strings.Contains(string(said), want) || strings.Contains(string(said), "has ended") {
				t.Errorf("hidden %q: want %q: %s", hidden, want, said)
			}
		}
	}
}

func TestCommandRunsWithoutShellOrSecretsAndTimesOut(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	t.Setenv("SOME_TOKEN", "a-secret")
	var text logtest.Log
	log := text.Logger()
	must(t, output.Command([]string{"/usr/bin/env"}, patience)(t.Context(), log))
	if got := text.String(); strings.Contains(got, "a-secret") || !strings.Contains(got, "PATH=") {
		t.Errorf("logged %s", got)
	}
	if err := output.Command([]string{"/bin/false"}, patience)(t.Context(), log); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("got %v", err)
	}
	if err := output.Command([]string{"/bin/echo $HOME"}, patience)(t.Context(), log); err == nil {
		t.Error("a shell was used")
	}
	failing := output.Command([]string{"/bin/sh", "-c", "echo one; echo '\x1b[31mbad config' >&2; exit 1"}, patience)
	if got := told(t, failing); got.Text != `"/bin/sh" failed: exit status 1; it said: \x1b[31mbad config` || got.NextTry.IsZero() {
		t.Errorf("the event is %+v", got)
	}
	begin := time.Now()
	err := output.Command([]string{"/bin/sh", "-c", "sleep 60 & sleep 60"}, 200*time.Millisecond)(t.Context(), log)
	if err == nil || !strings.Contains(err.Error(), "timed out and was killed") || time.Since(begin) > 30*time.Second {
		t.Errorf("got %v after %s", err, time.Since(begin))
	}
	must(t, output.Command([]string{"/usr/bin/printf", `\033[31mred\n%05000d`, "0"}, patience)(t.Context(), log))
	if got := text.String(); !strings.Contains(got, `x1b[31mred`) || len(got) > 10000 {
		t.Errorf("logged %d bytes: %.300s", len(got), got)
	}
}

// told returns the event of a reload that fails.
func told(t *testing.T, reload output.Reload) output.Event {
	t.Helper()
	source, events := newRotating(t), make(chan output.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cfg := output.Config{
		Name: "test", Pair: "default", Bundle: "ROOTCA", Folder: t.TempDir(), Files: output.IstioFiles(), Reload: reload,
		Observe: func(e output.Event) { events <- e }, Log: slog.New(slog.DiscardHandler),
	}
	ended := make(chan error, 1)
	go func() { ended <- output.Run(ctx, cfg, source) }()
	defer func() { cancel(); must(t, <-ended) }()
	for {
		select {
		case e := <-events:
			if e.Type == output.Written && !e.NotAfter.Equal(source.held("default").NotAfter) {
				t.Errorf("the files end at %s", e.NotAfter)
			}
			if e.Type == output.ReloadFailed {
				return e
			}
		case <-time.After(patience):
			t.Fatal("it did not fail")
		}
	}
}

// A program that goes on in the background has been reloaded all the same.
func TestCommandLeavingChildSucceeds(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	err := output.Command([]string{"/bin/sh", "-c", `sleep 60 & echo $! >"$0"`, pidFile}, patience)(t.Context(), slog.New(slog.DiscardHandler))
	text, readErr := os.ReadFile(pidFile)
	must(t, readErr)
	pid, numErr := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, numErr, syscall.Kill(pid, syscall.SIGKILL))
	if err != nil {
		t.Error(err)
	}
}

func TestFailedReloadIsRetried(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	tries := 0
	r := start(t, output.Config{Folder: t.TempDir(), Reload: func(context.Context, *slog.Logger) error {
		if tries++; tries < 3 {
			return errors.New("the program is busy")
		}
		return nil
	}}, newRotating(t))
	for _, want := range []output.EventType{output.Written, output.ReloadFailed, output.ReloadFailed, output.Reloaded} {
		if got := r.next(want); got != want {
			t.Fatalf("%s instead of %s:\n%s", got, want, r.log)
		}
	}
	if n := strings.Count(r.log.String(), "the program is busy"); n != 1 {
		t.Errorf("the same failure is reported %d times", n)
	}
}
