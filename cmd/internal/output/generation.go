package output

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// generation prefixes the name of the folder that holds one set.
const generation = ".set-"

// putGeneration writes a new folder and points the link to it. It keeps the previous
// folder for current readers until the next set.
func (w *writer) putGeneration(root *os.Root, s set) error {
	if w.number == "" { // a retry reuses it, so its error text is the same
		w.number = strconv.FormatInt(time.Now().UnixNano(), 36)
	}
	name := generation + w.Link + "-" + w.number
	before, _ := root.Readlink(w.Link)
	if err := w.fillGeneration(root, name, s); err != nil {
		return errors.Join(err, root.RemoveAll(name))
	}
	if err := w.turn(root, name); err != nil {
		return errors.Join(err, root.RemoveAll(name))
	}
	w.number = "" // the folder is now in use, whatever fails next
	w.sweep(root, name, before)
	return safefile.Sync(root)
}

func (w *writer) fillGeneration(root *os.Root, name string, s set) error {
	// A failed attempt may have left files behind.
	if err := errors.Join(root.RemoveAll(name), root.Mkdir(name, folderMode)); err != nil {
		return err
	}
	if err := root.Chmod(name, folderMode); err != nil { // override the umask
		return err
	}
	folder, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }() // everything written is synced
	for _, file := range w.Files {
		if err := w.create(folder, file.Name, file, s); err != nil {
			return err
		}
	}
	return safefile.Sync(folder)
}

// turn points the link to the folder atomically.
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
	return nil
}

// sweep removes the folders that no link uses any more.
func (w *writer) sweep(root *os.Root, keep ...string) {
	folder, err := root.Open(".")
	if err != nil {
		return // the next sweep will
	}
	defer func() { _ = folder.Close() }() // only read, so the error does not matter
	names, _ := folder.Readdirnames(-1)
	for _, name := range names {
		// "a" must not match the sets of "a-b"; no number contains '-'.
		number, ours := strings.CutPrefix(name, generation+w.Link+"-")
		if ours && !strings.Contains(number, "-") && !slices.Contains(keep, name) {
			if err := root.RemoveAll(name); err != nil {
				w.Log.Warn("cannot remove old output folder", "folder", name, "error", err)
			}
		}
	}
}
