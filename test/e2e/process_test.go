package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// process is a program that a test started; see [proctest.Start].
type process struct {
	*proctest.Process
	cmd *exec.Cmd
	log *processLog
}

func startProcess(t *testing.T, path string, args ...string) *process {
	t.Helper()
	return startProcessAs(t, nil, path, args...)
}

// startProcessAs starts it as another user, who gets the folder that it works in;
// nil is the test's own.
func startProcessAs(t *testing.T, user *syscall.Credential, path string, args ...string) *process {
	t.Helper()
	p := prepareProcess(t, user, path, args...)
	p.begin(t)
	return p
}

// prepareProcess starts nothing yet: begin does.
func prepareProcess(t *testing.T, user *syscall.Credential, path string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(path, args...)}
	p.cmd.Dir = proctest.Folder(t)
	p.cmd.Env = proctest.Environ(p.cmd.Dir)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	giveTo(t, user, p.cmd.Dir)
	return p
}

func (p *process) begin(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { p.log.mustBeClean(t, p) }) // when it has ended
	p.Process = proctest.Start(t, p.cmd)
	p.log = &processLog{p.Log}
}

// ordinary is a user without rights; nil where the test has none to give away.
func ordinary() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// giveTo makes a folder and all in it the user's.
func giveTo(t *testing.T, user *syscall.Credential, dir string) {
	t.Helper()
	if user == nil {
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, int(user.Uid), int(user.Gid)))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stop sends a signal and waits until the process has ended.
func (p *process) stop(t *testing.T, with syscall.Signal) {
	t.Helper()
	if !p.Stop(with) {
		t.Fatalf("%s did not end within %s of %v", p, proctest.Patience, with)
	}
}

// processLog lets a test wait for what a process writes.
type processLog struct{ *logtest.Log }

// mustBeClean holds the log to what no program of ours may write.
func (l *processLog) mustBeClean(t *testing.T, of fmt.Stringer) {
	t.Helper()
	for _, never := range []string{aToken, "DATA RACE", "panic:"} {
		if strings.Contains(l.String(), never) {
			t.Errorf("the log of %s says %q", of, never)
		}
	}
}

// await waits for a line that contains every one of the words.
func (l *processLog) await(t *testing.T, words ...string) (found string) {
	t.Helper()
	l.Await(t, patience, "a line with "+strings.Join(words, ", "), func(text string) bool {
		for line := range strings.Lines(text) {
			if containsAll(line, words) {
				found = line
				return true
			}
		}
		return false
	})
	return found
}

func containsAll(s string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(s, word) {
			return false
		}
	}
	return true
}

// alive tells whether there is a process of that pid, zombies aside.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	stat, err := readStat(pid)
	return err == nil && stat.state != "Z"
}

// withDeadline is the context of whatever a test waits for.
func withDeadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
