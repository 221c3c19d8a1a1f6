// Package safefile reads files that may be anything, with [Read], and writes files so that
// nobody sees them half done: [Create] makes one that has its mode and owner before its
// content and is on the disk when it returns, the caller renames it, and [Sync] has the new
// name reach the disk.
package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// File is one to write.
type File struct {
	Mode fs.FileMode
	// UID and GID own it; nil is who runs this.
	UID, GID *int
	Content  []byte
}

// private is the mode until the file has its own.
const private = 0o600

// Create makes a file of that name in the folder, in place of one that an earlier
// call left unfinished; a link there is removed, not followed.
func Create(folder *os.Root, name string, file File) error {
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, private)
	if err != nil {
		return err
	}
	return errors.Join(file.fill(out), out.Close())
}

// fill gives a new file away before it has content. Until its mode is set nobody but
// the agent can open it, and its user comes last, as one without CAP_FOWNER cannot
// change the mode of what is another's.
func (f File) fill(out *os.File) error {
	if err := give(out, nil, f.GID); err != nil {
		return err
	}
	if err := out.Chmod(f.Mode); err != nil {
		return err
	}
	if err := give(out, f.UID, nil); err != nil {
		return err
	}
	if _, err := out.Write(f.Content); err != nil {
		return err
	}
	return out.Sync()
}

func give(out *os.File, uid, gid *int) error {
	if uid == nil && gid == nil {
		return nil
	}
	err := out.Chown(orKeep(uid), orKeep(gid))
	switch {
	case err == nil:
		return nil
	case uid != nil:
		return fmt.Errorf("change the file's owner to user %d (needs root, CAP_CHOWN or that user): %w", *uid, err)
	}
	return fmt.Errorf("change the file's group to %d (needs root, CAP_CHOWN or membership): %w", *gid, err)
}

func orKeep(id *int) int {
	if id == nil {
		return -1
	}
	return *id
}

// Sync has the names of a folder reach the disk.
func Sync(root *os.Root) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncNames(folder), folder.Close())
}
