package filewatch

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// isMount reports whether a file is a mount point of its own, as a container's volume for one file
// or a subPath is: it stays the same file when the one outside is replaced.
func isMount(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	file, ok := mountOf(real)
	folder, known := mountOf(filepath.Dir(real))
	return ok && known && file.Mode&unix.S_IFMT == unix.S_IFREG && file.Mnt_id != folder.Mnt_id
}

// mountOf needs Linux 5.8.
func mountOf(path string) (unix.Statx_t, bool) {
	var info unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, unix.STATX_MODE|unix.STATX_TYPE|unix.STATX_MNT_ID, &info)
	return info, err == nil && info.Mask&unix.STATX_MNT_ID != 0
}
