//go:build unix

package install

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder lets one install at a time write into a folder. The system releases it at the
// latest when the process ends.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = folder.Close()
		return nil, fmt.Errorf("another install writes into %s: %w", path, err)
	}
	return func() { _ = folder.Close() }, nil
}
