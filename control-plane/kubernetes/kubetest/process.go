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

// run starts a program that appends to a log. A failed test keeps the log among its
// artifacts and prints its end.
func run(tb testing.TB, log, program string, args ...string) *process {
	tb.Helper()
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(tb, err)
	defer output.Close()
	cmd := exec.Command(program, args...) //nolint:gosec // the programs of COUNTERSIGN_KUBERNETES
	cmd.Dir, cmd.Env = filepath.Dir(log), []string{"HOME=" + filepath.Dir(log), "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = output, output
	// A test that hits its time limit runs no cleanup.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(tb, cmd.Start())
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	artifacts := tb.ArtifactDir()
	tb.Cleanup(func() {
		p.kill()
		if tb.Failed() {
			p.keepLog(tb, artifacts)
		}
	})
	return p
}

// kill kills the program and waits for it to end.
func (p *process) kill() {
	p.once.Do(func() { _ = p.cmd.Process.Kill() })
	<-p.done
}

// ended returns an error once the program has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended by itself: %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState)
	default:
		return nil
	}
}

const shown = 4096 // bytes of a log

func (p *process) keepLog(tb testing.TB, folder string) {
	tb.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		tb.Log(err)
		return
	}
	if err := os.WriteFile(filepath.Join(folder, filepath.Base(p.log)), text, 0o600); err != nil {
		tb.Log(err)
	}
	tb.Logf("the end of %s:\n%s", filepath.Base(p.log), text[max(0, len(text)-shown):])
}
