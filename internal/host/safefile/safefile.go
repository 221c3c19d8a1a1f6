// Package safefile reads untrusted files with [Read] and writes files atomically: [Create]
// writes a new file, sets mode and owner before the content, and syncs it; the caller
// renames it; [Sync] makes the new name durable. Outputs and the state folder use it. It
// keeps no state.
package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// File is a file to write.
type File struct {
	Mode fs.FileMode
	// UID and GID of the owner. Default: this process's.
	UID, GID *int
	Content  []byte
}

// private is the mode until the file gets its own.
const private = 0o600

// Create makes a file of that name in the folder and replaces one that an earlier call left
// unfinished. It removes a link and does not follow it.
func Create(folder *os.Root, name string, file File) error {
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errno.Explain(err)
	}
	out, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, private)
	if err != nil {
		return errno.Explain(err)
	}
	return errno.Explain(errors.Join(file.fill(out), out.Close()))
}

// fill sets group, mode and owner before the content. Until the mode is set only this
// process can open the file. The owner comes last: without CAP_FOWNER the mode of another
// user's file cannot be changed.
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

// Sync makes the names in a folder durable.
func Sync(root *os.Root) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncNames(folder), folder.Close())
}
