package cli

import (
	"fmt"
	"os"
	"syscall"
)

// streamOf returns the device and inode of a file, as in JOURNAL_STREAM.
func streamOf(file *os.File) (stream string, ok bool) {
	info, err := file.Stat()
	if err != nil {
		return "", false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino), true
}
