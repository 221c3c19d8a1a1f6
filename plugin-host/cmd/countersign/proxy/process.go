package proxy

import (
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// process is a child that is a process.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	exit  exit

	mu     sync.Mutex
	reaped bool // its pid may be somebody else's
}

// launch starts a process on the calling thread, which has to outlive it. It has the
// agent's standard output and error, and none of its other descriptors.
func launch(s start) (child, error) {
	p := &process{cmd: exec.Command(s.argv[0], s.argv[1:]...), ended: make(chan struct{})} //nolint:gosec // the operator says what is run
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = s.env, os.Stdout, os.Stderr, command.OwnGroup()
	// What the agent itself was started with would be passed on.
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
