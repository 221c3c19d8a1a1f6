package output

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// unfinished begins the name of a file or link that is not renamed yet.
	unfinished = ".new-"
	// generation begins the name of the folder of one set behind a link.
	generation = ".set-"
)

// put writes the whole set or, as far as the file system allows, nothing: all
// contents are on the disk before the first name changes.
func (w *writer) put(s set) error {
	if err := os.MkdirAll(w.Folder, 0o755); err != nil { //nolint:gosec // programs of other users read the files; their modes protect the key
		return err
	}
	folder, err := os.OpenRoot(w.Folder)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // what was written is synced
	w.checkFolder(folder)
	if w.Link == "" {
		return w.putFlat(folder, s)
	}
	return w.putGeneration(folder, s)
}

// checkFolder says once for each start that others may put files of theirs there;
// Kubernetes mounts such folders.
func (w *writer) checkFolder(folder *os.Root) {
	info, err := folder.Stat(".")
	if err == nil && w.written == (set{}) && info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		w.Log.Warn("the folder can be written by others, who may replace the files", "folder", w.Folder, "mode", info.Mode().String())
	}
}

func (w *writer) putFlat(folder *os.Root, s set) (err error) {
	files := slices.Clone(w.Files)
	// A reader that finds the new key finds its chain, too.
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(rank(a), rank(b)) })
	defer func() {
		for _, file := range files {
			_ = folder.Remove(unfinished + file.Name) // it is there only after a failure
		}
	}()
	for _, file := range files {
		if err := w.create(folder, unfinished+file.Name, file, s); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := folder.Rename(unfinished+file.Name, file.Name); err != nil {
			return err
		}
	}
	return syncFolder(folder)
}

// rank puts what holds a key last.
func rank(file File) int {
	if file.Content.holdsKey() {
		return 1
	}
	return 0
}

// create makes a file that has its mode and owner before its content.
func (w *writer) create(folder *os.Root, name string, file File, s set) error {
	content, err := w.render(file.Content, s)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, defaultKeyMode)
	if err != nil {
		return err
	}
	return errors.Join(w.fill(out, file, content), out.Close())
}

func (w *writer) fill(out *os.File, file File, content []byte) error {
	if w.UID != nil || w.GID != nil {
		if err := out.Chown(orKeep(w.UID), orKeep(w.GID)); err != nil {
			return err
		}
	}
	if err := out.Chmod(modeOf(file)); err != nil {
		return err
	}
	if _, err := out.Write(content); err != nil {
		return err
	}
	return out.Sync()
}

func orKeep(id *int) int {
	if id == nil {
		return -1
	}
	return *id
}

func modeOf(file File) fs.FileMode {
	switch {
	case file.Mode != 0:
		return file.Mode
	case file.Content.holdsKey():
		return defaultKeyMode
	}
	return defaultMode
}

// putGeneration writes a new folder and turns the link to it. The folder before it
// stays for who is reading, and goes with the next.
func (w *writer) putGeneration(root *os.Root, s set) (err error) {
	name := generation + w.Link + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.RemoveAll(name) // the failure is told already
		}
	}()
	folder, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // what was written is synced
	for _, file := range w.Files {
		if err := w.create(folder, file.Name, file, s); err != nil {
			return err
		}
	}
	if err := syncFolder(folder); err != nil {
		return err
	}
	before, _ := root.Readlink(w.Link)
	if err := w.turn(root, name); err != nil {
		return err
	}
	w.sweep(root, name, before)
	return nil
}

// turn has the link lead to the folder, from one moment to the next.
func (w *writer) turn(root *os.Root, name string) error {
	fresh := unfinished + w.Link
	if err := root.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.Symlink(name, fresh); err != nil {
		return err
	}
	if err := root.Rename(fresh, w.Link); err != nil {
		return errors.Join(err, root.Remove(fresh))
	}
	return syncFolder(root)
}

// sweep removes the folders that no link leads to any more.
func (w *writer) sweep(root *os.Root, keep ...string) {
	folder, err := root.Open(".")
	if err != nil {
		return // the next one will
	}
	defer func() { _ = folder.Close() }() // it was only read
	names, _ := folder.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, generation+w.Link+"-") && !slices.Contains(keep, name) {
			if err := root.RemoveAll(name); err != nil {
				w.Log.Warn("an old folder of files could not be removed", "folder", name, "error", err)
			}
		}
	}
}

// syncFolder has the names of a folder reach the disk.
func syncFolder(root *os.Root) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncNames(folder), folder.Close())
}
