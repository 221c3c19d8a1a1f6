//go:build unix && !linux

package pluginhost

import "syscall"

const missingProtection = "the verified file is started by its path, and a provider that ignores the lifeline outlives a killed host"

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit returns at once: here the process is reaped as it is seen.
func awaitExit(int) {}
