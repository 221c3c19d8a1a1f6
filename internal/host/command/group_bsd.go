//go:build unix && !linux

package command

import (
	"os"
	"syscall"
)

// OwnGroup asks for a separate process group.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// KillGroup kills the process and the rest of its group, if there is any.
func KillGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }

// AwaitExit returns at once: this system reaps a process when it reports the end.
func AwaitExit(int) (unreaped bool) { return false }
