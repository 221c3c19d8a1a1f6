package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that a test started. It is gone, with its whole process
// group, when the test ends; its log is shown where the test failed.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *processLog
	done chan struct{} // closed when it has ended
}

func startProcess(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	return startProcessAs(t, nil, name, path, args...)
}

// startProcessAs starts it as another user, who gets the folder that it works in;
// nil is the test's own.
func startProcessAs(t *testing.T, user *syscall.Credential, name, path string, args ...string) *process {
	t.Helper()
	p := prepareProcess(t, user, name, path, args...)
	p.begin(t)
	return p
}

// prepareProcess starts nothing yet: begin does.
func prepareProcess(t *testing.T, user *syscall.Credential, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(path, args...), log: newProcessLog(), done: make(chan struct{})}
	p.cmd.Dir = shortDir(t)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.cmd.Dir, "TMPDIR=" + p.cmd.Dir}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = 5 * time.Second
	// Pdeathsig: a test binary that dies takes what it started along.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: user}
	giveTo(t, user, p.cmd.Dir)
	return p
}

func (p *process) begin(t *testing.T) {
	t.Helper()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait()
	}()
	t.Cleanup(func() { p.end(t) })
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

func (p *process) pid() int { return p.cmd.Process.Pid }

// end asks the process to stop and does not take no for an answer.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%s did not end within %s of SIGTERM", p.name, patience)
	}
	// What it left in its group goes, too.
	syscall.Kill(-p.pid(), syscall.SIGKILL)
	<-p.done
	p.log.mustBeClean(t, p.name)
	if t.Failed() {
		t.Logf("log of %s (pid %d):\n%s", p.name, p.pid(), p.log)
	}
}

// stop sends a signal and waits until the process has ended.
func (p *process) stop(t *testing.T, with syscall.Signal) {
	t.Helper()
	p.signal(with)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%s did not end within %s of %v", p.name, patience, with)
	}
}

func (p *process) signal(with syscall.Signal) {
	select {
	case <-p.done: // its pid may be somebody else's by now
	default:
		p.cmd.Process.Signal(with)
	}
}

// processLog keeps what a process writes and lets a test wait for it.
type processLog struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed notice
}

func newProcessLog() *processLog { return &processLog{changed: newNotice()} }

func (l *processLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.tell()
	return l.text.Write(b)
}

var privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)

// String returns the last lines, without private keys.
func (l *processLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.Collect(strings.Lines(privateKey.ReplaceAllString(l.text.String(), "(a private key)")))
	lines = lines[max(0, len(lines)-40):]
	for i, line := range lines {
		if len(line) > 300 {
			lines[i] = line[:300] + "…\n"
		}
	}
	return strings.Join(lines, "")
}

// all returns every byte.
func (l *processLog) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.text.Bytes())
}

// mustBeClean holds the log to what no program of ours may write.
func (l *processLog) mustBeClean(t *testing.T, name string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, never := range []string{"PRIVATE KEY", aToken, "DATA RACE", "panic:"} {
		if bytes.Contains(l.text.Bytes(), []byte(never)) {
			t.Errorf("the log of %s says %q", name, never)
		}
	}
}

// await waits for a line that contains every one of the words.
func (l *processLog) await(t *testing.T, words ...string) string {
	t.Helper()
	var found string
	await(t, &l.mu, &l.changed, "a log line with "+strings.Join(words, ", "), func() bool {
		for line := range strings.Lines(l.text.String()) {
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
