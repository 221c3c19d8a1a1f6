package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// replaceTries is how often a file is opened that others keep replacing.
const replaceTries = 10

// errReplaced means that the file that was opened is not the one that was looked at.
var errReplaced = errors.New("it was replaced while it was opened")

// ReadWithin reads a regular file of so many bytes at most in a folder, if check accepts its mode and
// owner. The file itself must not be a link. Opening waits for nothing: a pipe is an error. A file that
// is replaced meanwhile is read anew.
func ReadWithin(folder *os.Root, name string, most int64, check func(fs.FileInfo) error) ([]byte, error) {
	content, err := readWithin(folder, name, most, check)
	for tries := 1; errors.Is(err, errReplaced) && tries < replaceTries; tries++ {
		content, err = readWithin(folder, name, most, check)
	}
	return content, err
}

func readWithin(folder *os.Root, name string, most int64, check func(fs.FileInfo) error) ([]byte, error) {
	before, err := folder.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file (%s)", before.Mode().Type())
	}
	file, err := open(folder, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !os.SameFile(before, info):
		return nil, errReplaced
	case info.Size() > most:
		return nil, fmt.Errorf("it has %d bytes, %d are allowed", info.Size(), most)
	}
	if err := check(info); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, most))
}

// open opens a file to be read. A pipe that took its place meanwhile is opened, too, without a writer.
func open(folder *os.Root, name string) (*os.File, error) {
	return folder.OpenFile(name, os.O_RDONLY|withoutWaiting, 0)
}
