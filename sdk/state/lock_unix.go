//go:build unix

package state

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder locks a folder until it is closed, also by the end of the process.
func lockFolder(folder *os.File) error {
	return unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
