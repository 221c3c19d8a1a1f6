//go:build e2e && linux

package ingress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

// patience is for a busy machine: nothing here takes longer than 20 s by itself.
const patience = 90 * time.Second

// process is a program that a test started, and that ends with it.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *logtest.Log
	done chan struct{} // closed when it has ended
}

func startProcess(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{name: filepath.Base(path), cmd: exec.Command(path, args...), log: &logtest.Log{}, done: make(chan struct{})}
	p.cmd.Dir = shortFolder(t)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.cmd.Dir, "TMPDIR=" + p.cmd.Dir, "COUNTERSIGN_PROVIDER_PATH=" + binaries(t)}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	go func() { defer close(p.done); _ = p.cmd.Wait() }()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end asks it to end, and shows its log where the test failed.
func (p *process) end(t *testing.T) {
	t.Helper()
	if !p.ended() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		t.Errorf("%s did not end within 20 s", p.name)
	}
	p.kill()
	if text := p.log.String(); strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("%s has logged a key", p.name)
	} else if t.Failed() {
		t.Logf("the log of %s:\n%s", p.name, text[max(0, len(text)-8192):])
	}
}

// kill ends it, and what it started, without a chance to say goodbye.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// shortFolder is one whose sockets have names that are short enough.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "in")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// poll waits for what tells nobody that it changed.
func poll(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// page is what a program says on its socket, "" while it does not.
func page(socket, path string) string {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	answer, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get("http://localhost" + path)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path+".new", content, 0o600))
	must(t, os.Rename(path+".new", path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
