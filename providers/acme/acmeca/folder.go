package acmeca

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
)

// folder is where this package keeps files: new ones get their mode before their content,
// and their name when they are whole. It is safe for concurrent use.
type folder struct{ root *os.Root }

const (
	privateFolder = 0o700
	privateFile   = 0o600
	othersWrite   = 0o022
)

// openFolder opens a folder, and makes it if need be. It refuses one that others can write.
func openFolder(path string) (*folder, error) {
	if err := os.MkdirAll(path, privateFolder); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&othersWrite != 0 {
		return nil, fmt.Errorf("others can write to %s: run chmod go-w", path)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &folder{root}, nil
}

func (f *folder) close() error { return f.root.Close() }

// read reads a file of at most so many bytes, and returns when it was made.
func (f *folder) read(name string, most int64) ([]byte, time.Time, error) {
	info, err := f.root.Stat(name)
	if err != nil {
		return nil, time.Time{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, time.Time{}, &fs.PathError{Op: "read", Path: name, Err: errors.New("it is not a regular file")}
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return content, info.ModTime(), err
}

// create makes a file that does not exist yet; else the error is [fs.ErrExist].
func (f *folder) create(name string, content []byte) error {
	return f.put(name, content, privateFile, f.root.Link)
}

// write makes or replaces a file.
func (f *folder) write(name string, content []byte, mode fs.FileMode) error {
	return f.put(name, content, mode, f.root.Rename)
}

func (f *folder) put(name string, content []byte, mode fs.FileMode, place func(from, to string) error) error {
	fresh := filepath.Join(filepath.Dir(name), ".new-"+uuid.NewString())
	err := f.fill(fresh, content, mode)
	if err == nil {
		err = place(fresh, name)
	}
	if gone := f.root.Remove(fresh); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err == nil {
		err = f.sync()
	}
	return err
}

// fill makes a file with its mode before its content, whatever the umask is.
func (f *folder) fill(name string, content []byte, mode fs.FileMode) error {
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	err = file.Chmod(mode)
	if err == nil {
		_, err = file.Write(content)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// sync makes the names in the folder durable.
func (f *folder) sync() error {
	dir, err := f.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f *folder) rename(from, to string) error {
	return errors.Join(f.root.Rename(from, to), f.sync())
}
