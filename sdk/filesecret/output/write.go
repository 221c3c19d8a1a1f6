package output

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const (
	// unfinished begins the name of a file or link that is not renamed yet.
	unfinished = ".new-"
	// replaced begins the name of a file that another takes the place of.
	replaced = ".old-"
)

// put writes the whole set or, as far as the file system allows, nothing: all
// contents are on the disk before the first name changes.
func (w *writer) put(s set) error {
	if err := makeFolder(w.Folder); err != nil {
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

// folderMode lets programs of other users in; the files' modes protect the key.
const folderMode = 0o755

// makeFolder makes a folder and those above it, as far as they are missing, with their
// mode whatever the umask: a service's is often 0077.
func makeFolder(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if above := filepath.Dir(path); above != path {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, folderMode)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil // somebody else was faster
	case err != nil:
		return err
	}
	return os.Chmod(path, folderMode)
}

// checkFolder says once for each start that others may put files of theirs there;
// Kubernetes mounts such folders.
func (w *writer) checkFolder(folder *os.Root) {
	info, err := folder.Stat(".")
	if err == nil && w.written == (set{}) && info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		w.Log.Warn("the folder can be written by others, who may replace the files", "folder", w.Folder, "mode", info.Mode().String())
	}
}

// putFlat replaces the files one after the other. Where one cannot be, those before it
// are put back: a chain beside another key would be worse than an old pair.
func (w *writer) putFlat(folder *os.Root, s set) error {
	files := slices.Clone(w.Files)
	// A reader that finds the new key finds its chain, too.
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(rank(a), rank(b)) })
	tidy(folder, files) // after one that was killed
	defer tidy(folder, files)
	for _, file := range files {
		if err := w.create(folder, unfinished+file.Name, file, s); err != nil {
			return err
		}
	}
	for n, file := range files {
		// The first time there is none; a file system may know no links, and then what
		// was there cannot be put back.
		_ = folder.Link(file.Name, replaced+file.Name)
		if err := folder.Rename(unfinished+file.Name, file.Name); err != nil {
			return errors.Join(err, putBack(folder, files[:n]))
		}
	}
	return syncFolder(folder)
}

func putBack(folder *os.Root, files []File) error {
	var errs []error
	for _, file := range files {
		if err := folder.Rename(replaced+file.Name, file.Name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, syncFolder(folder))...)
}

func tidy(folder *os.Root, files []File) {
	for _, file := range files {
		_ = folder.Remove(unfinished + file.Name) // it is there only after a failure
		_ = folder.Remove(replaced + file.Name)
	}
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
	if err := errors.Join(w.fill(out, file, content), out.Close()); err != nil {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	return nil
}

// fill gives a new file away before it has content. Until its mode is set nobody but
// the agent can open it, and its user comes last, as one without CAP_FOWNER cannot
// change the mode of what is another's.
func (w *writer) fill(out *os.File, file File, content []byte) error {
	if err := w.give(out, nil, w.GID); err != nil {
		return err
	}
	if err := out.Chmod(modeOf(file)); err != nil {
		return err
	}
	if err := w.give(out, w.UID, nil); err != nil {
		return err
	}
	if _, err := out.Write(content); err != nil {
		return err
	}
	return out.Sync()
}

func (w *writer) give(out *os.File, uid, gid *int) error {
	if uid == nil && gid == nil {
		return nil
	}
	err := out.Chown(orKeep(uid), orKeep(gid))
	switch {
	case err == nil:
		return nil
	case uid != nil:
		return fmt.Errorf("give the file to user %d, for which the agent has to be root, have CAP_CHOWN or be that user: %w", *uid, err)
	}
	return fmt.Errorf("give the file to group %d, for which the agent has to be root, have CAP_CHOWN or be in that group: %w", *gid, err)
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

// syncFolder has the names of a folder reach the disk.
func syncFolder(root *os.Root) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncNames(folder), folder.Close())
}
