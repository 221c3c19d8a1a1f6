package output

import "golang.org/x/sys/unix"

// onDisk reports whether a folder is known to be on a file system that is not in memory.
func onDisk(folder string) bool {
	var at unix.Statfs_t
	if err := unix.Statfs(folder, &at); err != nil {
		return false
	}
	return at.Type != unix.TMPFS_MAGIC && at.Type != unix.RAMFS_MAGIC
}
