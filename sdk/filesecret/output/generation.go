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

// generation begins the name of the folder of one set behind a link.
const generation = ".set-"

// putGeneration writes a new folder and turns the link to it. The folder before it
// stays for who is reading, and goes with the next.
func (w *writer) putGeneration(root *os.Root, s set) error {
	if w.number == "" { // a second try has the same, and so the same words of failure
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
	w.number = "" // from here on the folder is in use, whatever fails
	w.sweep(root, name, before)
	return safefile.Sync(root)
}

func (w *writer) fillGeneration(root *os.Root, name string, s set) error {
	// A try before may have left something that it could not remove.
	if err := errors.Join(root.RemoveAll(name), root.Mkdir(name, folderMode)); err != nil {
		return err
	}
	if err := root.Chmod(name, folderMode); err != nil { // whatever the umask
		return err
	}
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
	return safefile.Sync(folder)
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
	return nil
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
		// "a" leaves the sets of "a-b" alone: no number has a '-'.
		number, ours := strings.CutPrefix(name, generation+w.Link+"-")
		if ours && !strings.Contains(number, "-") && !slices.Contains(keep, name) {
			if err := root.RemoveAll(name); err != nil {
				w.Log.Warn("cannot remove old output folder", "folder", name, "error", err)
			}
		}
	}
}
