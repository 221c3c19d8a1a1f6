package command

import (
	"os"
	"syscall"
)

// OwnGroup asks for a group of its own, and death with the thread that started it.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// KillGroup kills the process and all that is left of its group; gone is fine.
func KillGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
