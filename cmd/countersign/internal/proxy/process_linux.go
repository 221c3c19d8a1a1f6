package proxy

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// keepDescriptors marks inherited descriptors close-on-exec. Before Linux 5.11 that call does
// not exist, and the proxy inherits them.
func keepDescriptors() { _ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) }

// reap waits for the exit, kills the rest of the group, and then reaps: until then the group's
// ID cannot be reused.
func (p *process) reap() {
	for {
		if err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	command.KillGroup(p.cmd.Process)
	p.reaped = true
	p.mu.Unlock()
	_ = p.cmd.Wait() // ProcessState has the result
}
