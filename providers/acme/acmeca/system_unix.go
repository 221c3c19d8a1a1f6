//go:build unix

package acmeca

import (
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// tryLock locks an open file against other processes, and other opens of this one, until it is
// closed. It reports whether it has got the lock.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// ownGroup has a program run in a process group of its own, which is killed with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// looseMode reports whether the mode gives others access to a key. The group may read it:
// Kubernetes mounts secrets like that for a process that is not root.
func looseMode(mode fs.FileMode) bool { return mode.Perm()&0o027 != 0 }
