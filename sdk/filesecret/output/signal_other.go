//go:build !linux

package output

import (
	"errors"
	"io/fs"
	"syscall"
)

const nonBlocking = 0

// signal needs to know that the process is the one that was meant, which only
// Linux can tell.
func (p Process) signal(int, syscall.Signal) error {
	return errors.New("a process is signalled on Linux only; use a command")
}

func ownerOf(fs.FileInfo) (uid int, ok bool) { return 0, false }
