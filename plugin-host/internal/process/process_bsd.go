//go:build unix && !linux

package process

import "syscall"

const MissingProtection = "the verified file is started by its path, a provider that ignores the lifeline outlives a killed host, " +
	"and it may execute set-user-ID programs"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit returns at once: here the process is reaped as it is seen to have ended.
func awaitExit(int) (unreaped bool) { return false }
