//go:build unix

package agent

import "syscall"

// processGroup returns the group of a process that is known and still there.
func processGroup(pid int) (int, bool) {
	group, err := syscall.Getpgid(pid)
	return group, err == nil && pid > 0
}
