//go:build unix

package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// withoutWaiting has a pipe opened without a writer.
const withoutWaiting = syscall.O_NONBLOCK

// CheckAccess rejects a file with any of the permissions in closed, such as 0o077, or of an owner
// other than root, this process's user and the given users.
func CheckAccess(what string, info fs.FileInfo, closed fs.FileMode, owners ...int) error {
	if mode := info.Mode().Perm(); mode&closed != 0 {
		return fmt.Errorf("%s is open to others (mode %04o): chmod %s", what, mode, strict(closed))
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if known && owner.Uid != 0 && !slices.Contains(append(owners, os.Geteuid()), int(owner.Uid)) {
		return fmt.Errorf("%s belongs to uid %d, neither root nor the user that runs this (uid %d): run this as that user%s, or chown it", what, owner.Uid, os.Geteuid(), asUser(owner.Uid))
	}
	return nil
}

// strict returns chmod's argument that removes what closed forbids to others.
func strict(closed fs.FileMode) string {
	if closed&0o044 == 0 {
		return "go-w"
	}
	return "go-rwx"
}

// OfRoot reports whether root owns the file.
func OfRoot(info fs.FileInfo) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	return known && owner.Uid == 0
}

// asUser returns the command that does so, if root may use it and the user has a name.
func asUser(uid uint32) string {
	found, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil || os.Geteuid() != 0 {
		return ""
	}
	return " (runuser -u " + found.Username + " -- COMMAND)"
}
