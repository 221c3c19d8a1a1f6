//go:build unix

package verified

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const exeSuffix = ""

const errNotFolder = syscall.ENOTDIR

const (
	groupWrites = 0o020
	otherWrites = 0o002
)

// checkFile returns why the file must not run: another user who can write it could run code as
// this user. path is for the error.
func checkFile(path string, info os.FileInfo) error {
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return Refuse(path, "not a regular file (%s)", mode.Type())
	case mode.Perm()&0o111 == 0:
		return Refuse(path, "not executable (mode %04o); run chmod +x", mode.Perm())
	case mode&(os.ModeSetuid|os.ModeSetgid) != 0:
		return Refuse(path, "set-user-ID or set-group-ID; run chmod ug-s")
	case mode.Perm()&(groupWrites|otherWrites) != 0:
		return Refuse(path, "writable by others (mode %04o); run chmod go-w", mode.Perm())
	}
	return CheckOwner(path, path, info)
}

// checkFolder returns why folder must not be trusted: it or a parent belongs to another user
// or is writable by others, who could put another file there.
func checkFolder(path, folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return Refuse(path, "cannot read its folder: %v", err)
	}
	if info.Mode().Perm()&(groupWrites|otherWrites) != 0 {
		return Refuse(path, "its folder is writable by others (mode %04o); run chmod go-w %s", info.Mode().Perm(), folder)
	}
	if err := CheckOwner(path, folder, info); err != nil {
		return err
	}
	for at := folder; at != filepath.Dir(at); {
		at = filepath.Dir(at)
		if err := checkParent(path, at); err != nil {
			return err
		}
	}
	return nil
}

func checkParent(path, folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return Refuse(path, "the folder %s above cannot read it: %v", folder, err)
	}
	perm := info.Mode().Perm()
	// In a sticky folder such as /tmp, only the owner of a file can rename it.
	open := perm&otherWrites != 0 || perm&groupWrites != 0 && !privateGroup(info)
	if open && info.Mode()&os.ModeSticky == 0 {
		return Refuse(path, "its parent folder %s is writable by others (mode %04o)", folder, perm)
	}
	return CheckOwner(path, folder, info)
}

// privateGroup reports whether the folder's group belongs to its owner alone, as Debian
// and Fedora set up users (with umask 002).
func privateGroup(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0 && int(st.Uid) == os.Geteuid() && st.Gid == st.Uid
}

// CheckOwner refuses path if neither root nor this user owns what: the file itself or a
// folder above it.
func CheckOwner(path, what string, info os.FileInfo) error {
	if err := Owned(what, info); err != nil {
		return Refuse(path, "%v", err)
	}
	return nil
}

// Owned returns an error if neither root nor this user owns what.
func Owned(what string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("cannot determine the owner of %s", what)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s is owned by uid %d, not by root or the current user (uid %d)", what, st.Uid, os.Geteuid())
	}
	return nil
}

// OnlyRootWrites reports whether root alone can change the file at path, symbolic links
// resolved, or put another one there.
func OnlyRootWrites(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for _, named := range []string{path, real} {
		if !onlyRootsPath(named) {
			return false
		}
	}
	return true
}

func onlyRootsPath(path string) bool {
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || !ofRoot(info, at != path) {
			return false
		}
		if at == filepath.Dir(at) {
			return true
		}
	}
}

// ofRoot reports whether a file or folder is root's, and only root can write it. In a sticky
// folder above, others cannot rename what is root's.
func ofRoot(info os.FileInfo, above bool) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	loose := info.Mode().Perm()&(groupWrites|otherWrites) != 0
	sticky := above && info.IsDir() && info.Mode()&os.ModeSticky != 0
	return ok && st.Uid == 0 && (!loose || sticky)
}
