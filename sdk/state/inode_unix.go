//go:build unix

package state

import (
	"os"
	"syscall"
)

// inode returns what tells a file from the one that it replaced.
func inode(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
