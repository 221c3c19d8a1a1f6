//go:build unix && !linux

package proxy

func keepDescriptors() {}

// reap waits for the end. What is left of the group is not killed: here its id may be
// somebody else's by now.
func (p *process) reap() {
	_ = p.cmd.Wait() // ProcessState says it
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
}
