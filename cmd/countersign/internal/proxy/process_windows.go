package proxy

func keepDescriptors() {}

func (p *process) reap() {
	_ = p.cmd.Wait() // ProcessState has the result
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
}
