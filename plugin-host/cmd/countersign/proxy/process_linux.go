package proxy

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/command"
)

// keepDescriptors has what this process inherited end at the next exec. Before Linux
// 5.11 there is no such call, and what was handed to the agent reaches the proxy.
func keepDescriptors() { _ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) }

// reap waits for the end, takes what is left of the group along, and reaps: until
// then the group's id is nobody else's.
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
	_ = p.cmd.Wait() // ProcessState says it
}
