package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadWithin reads a regular file of so many bytes at most in a folder, if check accepts its mode and
// owner. The file itself must not be a link. Opening waits for nothing: a pipe is an error.
func ReadWithin(folder *os.Root, name string, most int64, check func(fs.FileInfo) error) ([]byte, error) {
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
		return nil, errors.New("it was replaced while it was opened")
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
