//go:build unix

package errno

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// openFiles returns how many files this process may have open.
func openFiles() string {
	limit := OpenFiles()
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("this process may have %d open files: ", limit)
}

// OpenFiles returns how many files this process may have open; 0: unknown.
func OpenFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}
