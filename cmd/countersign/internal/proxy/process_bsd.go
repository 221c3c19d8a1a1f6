//go:build unix && !linux

package proxy

func keepDescriptors() {}

// reap waits for the process. It does not kill the rest of the group, whose ID may already be
// reused on this system.
func (p *process) reap() {
	_ = p.cmd.Wait() // ProcessState has the result
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
}
