//go:build unix

package state

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// checkPrivate rejects what others may access and what neither root nor this user owns.
func checkPrivate(what string, info fs.FileInfo) error { return checkAccess(what, info, 0o077) }

// checkKeyFile also takes a file of root that a group may read.
func checkKeyFile(what string, info fs.FileInfo) error {
	if owner, known := info.Sys().(*syscall.Stat_t); known && owner.Uid == 0 {
		return checkAccess(what, info, 0o037)
	}
	return checkPrivate(what, info)
}

// checkAccess rejects a file with any of the permissions in closed.
func checkAccess(what string, info fs.FileInfo, closed fs.FileMode) error {
	if mode := info.Mode().Perm(); mode&closed != 0 {
		return fmt.Errorf("%s is open to others (mode %04o): chmod go-rwx", what, mode)
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	if known && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, neither root nor the user that runs this (uid %d): run this as that user%s, or chown it", what, owner.Uid, os.Geteuid(), asUser(owner.Uid))
	}
	return nil
}

// asUser returns the command that does so, if root may use it and the user has a name.
func asUser(uid uint32) string {
	found, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil || os.Geteuid() != 0 {
		return ""
	}
	return " (runuser -u " + found.Username + " -- COMMAND)"
}
