package proxy

import (
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// process is a child that is a real process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	exit  exit

	mu     sync.Mutex
	reaped bool // its PID may be reused
}

// launch starts a process on the calling thread, which must outlive it. The process inherits
// only standard output and error.
func launch(s start) (child, error) {
	p := &process{cmd: exec.Command(s.argv[0], s.argv[1:]...), ended: make(chan struct{})} //nolint:gosec // the operator configured it
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = s.env, os.Stdout, os.Stderr, command.OwnGroup()
	// Descriptors that the agent itself inherited would be passed on.
	keepDescriptors()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.await()
	return p, nil
}

func (p *process) await() {
	p.reap()
	state := p.cmd.ProcessState
	p.exit = exit{code: state.ExitCode()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.exit = exit{code: 128 + int(status.Signal()), signal: status.Signal()}
	}
	close(p.ended)
}

// PID implements child.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Ended implements child.
func (p *process) Ended() <-chan struct{} { return p.ended }

// Exit implements child.
func (p *process) Exit() exit { return p.exit }

// Signal implements child.
func (p *process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill implements child.
func (p *process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		command.KillGroup(p.cmd.Process)
	}
}

// Listens implements child.
func (p *process) Listens() bool { return listens(p.PID()) }
