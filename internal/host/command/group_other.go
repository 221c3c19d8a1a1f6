//go:build !unix

package command

import (
	"os"
	"syscall"
)

// OwnGroup does nothing: this system has no process groups.
func OwnGroup() *syscall.SysProcAttr { return nil }

// KillGroup kills the process only.
func KillGroup(leader *os.Process) { _ = leader.Kill() }
