//go:build unix && !linux

package process

import "syscall"

const MissingProtection = "the verified file is executed by path, a provider that ignores the lifeline outlives a killed host, " +
	"and providers can execute set-user-ID programs"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
