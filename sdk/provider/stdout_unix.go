//go:build unix

package provider

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// stdoutAside returns the real standard output and lets whatever is printed go to
// standard error, by C code and children, too.
func stdoutAside() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 5)
	if err != nil {
		return nil, err
	}
	if err := dup2(2, 1); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
