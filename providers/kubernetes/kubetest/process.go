//go:build linux

package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// process is a program that runs until it is killed, at the latest when the test ends.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	once sync.Once
}

// run starts a program that writes to the end of a log. A failed test keeps the log among
// its artifacts, and shows how it ends.
func run(t testing.TB, log, program string, args ...string) *process {
	t.Helper()
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer output.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = filepath.Dir(log), []string{"HOME=" + filepath.Dir(log), "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = output, output
	// A test that runs into its time limit cleans nothing up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	artifacts := t.ArtifactDir()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			p.keepLog(t, artifacts)
		}
	})
	return p
}

// kill returns when the program has ended.
func (p *process) kill() {
	p.once.Do(func() { _ = p.cmd.Process.Kill() })
	<-p.done
}

// ended is an error once the program runs no longer.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended by itself: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState)
	default:
		return nil
	}
}

const shown = 4096 // bytes of a log

func (p *process) keepLog(t testing.TB, folder string) {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Log(err)
		return
	}
	if err := os.WriteFile(filepath.Join(folder, filepath.Base(p.log)), text, 0o600); err != nil {
		t.Log(err)
	}
	t.Logf("the end of %s:\n%s", filepath.Base(p.log), text[max(0, len(text)-shown):])
}
