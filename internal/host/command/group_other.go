//go:build !unix

package command

import (
	"os"
	"syscall"
)

// OwnGroup is nothing: there are no groups.
func OwnGroup() *syscall.SysProcAttr { return nil }

// KillGroup kills the one process.
func KillGroup(leader *os.Process) { _ = leader.Kill() }
