package command

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnGroup asks for a separate process group, and for death with the thread that started it.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// KillGroup kills the process and the rest of its group, if there is any.
func KillGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }

// AwaitExit returns when the process has ended and does not reap it.
func AwaitExit(pid int) (unreaped bool) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return true
		}
	}
}
