//go:build unix

package lock

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/host/verified"
)

const othersWrite = 0o022

// openTrusted opens a file that only root or this user can have written or put there. It
// checks what is read: the open file, and its folder with symbolic links resolved
// (Kubernetes mounts files as links).
func openTrusted(path string) (*os.File, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if err := checkFolder(filepath.Dir(real)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(real, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := checkOpen(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func checkOpen(file *os.File) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("not a regular file (%s)", info.Mode().Type())
	case info.Mode().Perm()&othersWrite != 0:
		return fmt.Errorf("writable by others (mode %04o); check its content, then run chmod go-w", info.Mode().Perm())
	}
	return verified.Owned(info.Name(), info)
}

// checkFolder: a user who can write to the folder could replace the lock with an older one.
func checkFolder(folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&othersWrite != 0 && info.Mode()&os.ModeSticky == 0 {
		return fmt.Errorf("its folder is writable by others (mode %04o); run chmod go-w %s", info.Mode().Perm(), folder)
	}
	return verified.Owned(info.Name(), info)
}
