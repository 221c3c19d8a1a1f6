//go:build unix

package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockDir locks a folder or fails at once. The lock ends with the process.
func lockDir(path string) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// isThere reports whether the locked folder still has its name.
func (d *Folder) isThere() bool {
	held, err := d.lock.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(d.Path)
	return err == nil && os.SameFile(held, named)
}
