package process

import "syscall"

// MissingProtection is empty: nothing is missing.
const MissingProtection = ""

// sysProcAttr asks for a separate group, and for death with the thread that started it,
// in case the provider ignores the lifeline.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
