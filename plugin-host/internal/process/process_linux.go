package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// MissingProtection is empty: nothing is missing.
const MissingProtection = ""

// sysProcAttr asks for a separate group, and for death with the thread that started it,
// in case the provider ignores the lifeline.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended and does not reap it.
func awaitExit(pid int) (unreaped bool) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return true
		}
	}
}
