//go:build unix && !linux

package command

import (
	"os"
	"syscall"
)

// OwnGroup asks for a group of its own.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// KillGroup kills the process and all that is left of its group; gone is fine.
func KillGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
