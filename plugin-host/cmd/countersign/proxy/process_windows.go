package proxy

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func keepDescriptors() {}

func (p *process) reap() {
	_ = p.cmd.Wait() // ProcessState says it
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
}

// killGroup kills the one process: there are no groups.
func killGroup(leader *os.Process) { _ = leader.Kill() }
