package output

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/countersign-dev/countersign/internal/host/safefile"
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
		w.Log.Warn("folder is writable by other users, who could replace its files", "folder", w.Folder, "mode", info.Mode().String())
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
	return safefile.Sync(folder)
}

func putBack(folder *os.Root, files []File) error {
	var errs []error
	for _, file := range files {
		if err := folder.Rename(replaced+file.Name, file.Name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, safefile.Sync(folder))...)
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
	if err := safefile.Create(folder, name, safefile.File{Mode: modeOf(file), UID: w.UID, GID: w.GID, Content: content}); err != nil {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	return nil
}

func modeOf(file File) fs.FileMode { return cmp.Or(file.Mode, file.Content.DefaultMode()) }
