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

// AwaitExit returns at once: this system reaps a process when it reports the end.
func AwaitExit(int) (unreaped bool) { return false }
