package command

import (
	"os"
	"syscall"
)

// OwnGroup asks for a separate process group, and for death with the thread that started it.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// KillGroup kills the process and the rest of its group, if there is any.
func KillGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
