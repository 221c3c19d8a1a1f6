package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// MissingProtection is empty: nothing is.
const MissingProtection = ""

// sysProcAttr: a group of its own, and death with the thread that started it, as
// insurance beside the lifeline.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended, and leaves it to be reaped.
func awaitExit(pid int) (unreaped bool) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return true
		}
	}
}
