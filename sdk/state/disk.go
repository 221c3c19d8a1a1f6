package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// disk is the folder of a log. A test puts faults into it.
type disk interface {
	open(name string) (diskFile, error)   // an existing file
	create(name string) (diskFile, error) // a new one, in place of an unfinished one
	rename(from, to string) error
	remove(name string) error
	sync() error // makes the names durable
	Close() error
}

type diskFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// folderDisk is a folder that is open and locked.
type folderDisk struct {
	root *os.Root
	lock *os.File
}

// openDisk makes the folder if need be, checks it and locks it for this process.
func openDisk(path string) (_ folderDisk, err error) {
	if err := os.MkdirAll(path, folderMode); err != nil {
		return folderDisk{}, err
	}
	if err := checkFolder(path); err != nil {
		return folderDisk{}, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return folderDisk{}, err
	}
	lock, err := root.Open(".")
	if err != nil {
		return folderDisk{}, errors.Join(err, root.Close())
	}
	if err := lockFolder(lock); err != nil {
		err = fmt.Errorf("%s is in use by another process: %w", path, err)
		return folderDisk{}, errors.Join(err, lock.Close(), root.Close())
	}
	return folderDisk{root, lock}, nil
}

func (d folderDisk) open(name string) (diskFile, error) {
	before, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() { // opening a pipe would block, and a link may lead anywhere
		return nil, fmt.Errorf("%s is not a regular file (%s)", name, before.Mode().Type())
	}
	file, err := d.root.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !os.SameFile(before, info):
		err = fmt.Errorf("%s was replaced while it was opened", name)
	default:
		err = checkPrivate(name, info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return osFile{file}, nil
}

func (d folderDisk) create(name string) (diskFile, error) {
	if err := d.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{file}, nil
}

func (d folderDisk) rename(from, to string) error { return d.root.Rename(from, to) }
func (d folderDisk) remove(name string) error     { return d.root.Remove(name) }
func (d folderDisk) sync() error                  { return safefile.Sync(d.root) }

// Close ends the lock.
func (d folderDisk) Close() error { return errors.Join(d.lock.Close(), d.root.Close()) }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
