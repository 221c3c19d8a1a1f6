//go:build unix

package output

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the command the head of a process group, which ends as a whole.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
