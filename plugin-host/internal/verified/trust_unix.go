//go:build unix

package verified

import (
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

// checkFile says why the file must not be run: whoever may write it would run
// as us. path is the one to name.
func checkFile(path string, info os.FileInfo) error {
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return Refuse(path, "it is not a regular file (%s)", mode.Type())
	case mode.Perm()&0o111 == 0:
		return Refuse(path, "it is not executable (mode %04o); chmod +x", mode.Perm())
	case mode&(os.ModeSetuid|os.ModeSetgid) != 0:
		return Refuse(path, "it is set-user-ID or set-group-ID; chmod ug-s")
	case mode.Perm()&(groupWrites|otherWrites) != 0:
		return Refuse(path, "others may write it (mode %04o); chmod go-w", mode.Perm())
	}
	return CheckOwner(path, path, info)
}

// checkFolder says why folder must not be trusted: it, or one above it, is
// somebody else's or may be written by others, who could put another file there.
func checkFolder(path, folder string) error {
	info, err := os.Stat(folder)
	if err != nil {
		return Refuse(path, "its folder cannot be read: %v", err)
	}
	if info.Mode().Perm()&(groupWrites|otherWrites) != 0 {
		return Refuse(path, "others may write its folder (mode %04o); chmod go-w %s", info.Mode().Perm(), folder)
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
		return Refuse(path, "the folder %s above it cannot be read: %v", folder, err)
	}
	perm := info.Mode().Perm()
	// In a sticky folder (/tmp) nobody can rename what is another's.
	open := perm&otherWrites != 0 || perm&groupWrites != 0 && !privateGroup(info)
	if open && info.Mode()&os.ModeSticky == 0 {
		return Refuse(path, "others may write the folder %s above it (mode %04o)", folder, perm)
	}
	return CheckOwner(path, folder, info)
}

// privateGroup tells whether the folder's group is that of its owner alone, as
// Debian and Fedora make one for each user, who then has umask 002.
func privateGroup(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid != 0 && int(st.Uid) == os.Geteuid() && st.Gid == st.Uid
}

// CheckOwner refuses path because of what (the file itself or a folder above it) if
// neither root nor this user owns what.
func CheckOwner(path, what string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return Refuse(path, "%s belongs to uid %d, neither root nor the user that runs this (uid %d)", what, st.Uid, os.Geteuid())
	}
	return nil
}
