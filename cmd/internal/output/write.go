package output

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/internal/host/safefile"
)

const (
	// unfinished prefixes the name of a file or link not yet renamed.
	unfinished = ".new-"
	// replaced prefixes the name of a file being replaced.
	replaced = ".old-"
)

// put writes the whole set or, as far as the file system allows, nothing: it syncs all
// contents to disk before it changes the first name.
func (w *writer) put(s set) error {
	if err := makeFolder(w.Folder); err != nil {
		return err
	}
	folder, err := os.OpenRoot(w.Folder)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // everything written is synced
	w.checkFolder(folder)
	w.warnOfDisk()
	if w.Link == "" {
		return w.putFlat(folder, s)
	}
	return w.putGeneration(folder, s)
}

// folderMode admits programs of other users; the files' modes protect the key.
const folderMode = 0o755

// makeFolder makes a folder and its missing parents with folderMode, whatever the umask,
// which is often 0077 for a service.
func makeFolder(path string) error {
	switch info, err := os.Stat(path); {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
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
		return nil // another process made it
	case err != nil:
		return err
	}
	return os.Chmod(path, folderMode)
}

// checkFolder warns once per start if others can write to the folder; Kubernetes mounts
// such folders.
func (w *writer) checkFolder(folder *os.Root) {
	info, err := folder.Stat(".")
	if err == nil && w.written.empty() && info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		w.Log.Warn("folder is writable by other users, who could replace its files", "folder", w.Folder, "mode", info.Mode().String())
	}
}

// putFlat replaces the files one by one. If one fails, it restores those before it: a
// chain beside the wrong key would be worse than an old pair.
func (w *writer) putFlat(folder *os.Root, s set) error {
	files, err := w.filesOf(s)
	if err != nil {
		return err
	}
	files = slices.Clone(files)
	// The key comes last, so a reader that finds the new key finds its chain, too.
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(rank(a), rank(b)) })
	tidy(folder, files) // leftovers of a run that was killed
	defer tidy(folder, files)
	if files, err = w.createAll(folder, files, s); err != nil {
		return err
	}
	for n, file := range files {
		w.checkLink(folder, file.Name)
		// This fails the first time, as there is no old file. On a file system without
		// links, the old file cannot be restored.
		_ = folder.Link(file.Name, replaced+file.Name)
		if err := folder.Rename(unfinished+file.Name, file.Name); err != nil {
			return errors.Join(mounted(err), putBack(folder, files[:n]))
		}
	}
	return errors.Join(w.sweepDomains(folder, s), safefile.Sync(folder))
}

// createAll creates the files under unfinished names, and returns them. It leaves out the roots of a foreign
// trust domain too long for a file name of this file system.
func (w *writer) createAll(folder *os.Root, files []File, s set) (created []File, err error) {
	for _, file := range files {
		err := w.create(folder, unfinished+file.Name, file, s)
		switch {
		case err == nil:
			created = append(created, file)
		case file.domain != "" && errors.Is(err, syscall.ENAMETOOLONG):
			w.Log.Error("trust bundle left out: the name of its file is too long for the file system", "folder", w.Folder, "trust_domain", file.domain, "bytes", len(file.Name))
		default:
			return nil, err
		}
	}
	return created, nil
}

// mounted returns why the system keeps a file from being replaced.
func mounted(err error) error {
	if errors.Is(err, syscall.EBUSY) {
		return errno.Advise(err, "the file is a mount point of its own: mount the folder that has it, not the file")
	}
	return err
}

// checkLink warns of a link that a file is about to replace: what reads the link's target keeps the
// old content. It is not followed, as its target may be anywhere.
func (w *writer) checkLink(folder *os.Root, name string) {
	if target, err := folder.Readlink(name); err == nil {
		w.Log.Warn("a link is replaced by a file, and its target stays as it is; write to the target's folder instead", "folder", w.Folder, "file", name, "target", target)
	}
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
		_ = folder.Remove(unfinished + file.Name) // it exists only after a failure
		_ = folder.Remove(replaced + file.Name)
	}
}

// rank sorts files that hold a key last.
func rank(file File) int {
	if file.Content.holdsKey() {
		return 1
	}
	return 0
}

// create makes a file and sets its mode and owner before it writes the content.
func (w *writer) create(folder *os.Root, name string, file File, s set) error {
	content, err := w.render(file, s)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	if err := safefile.Create(folder, name, safefile.File{Mode: modeOf(file), UID: w.UID, GID: w.GID, Content: content}); err != nil {
		return fmt.Errorf("%s: %w", file.Name, err)
	}
	return nil
}

func modeOf(file File) fs.FileMode { return cmp.Or(file.Mode, file.Content.DefaultMode()) }
