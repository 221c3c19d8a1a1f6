package safefile

import (
	"fmt"
	"io"
	"os"
)

// Read reads a regular file of so many bytes at most.
func Read(path string, most int64) ([]byte, error) {
	// Asked before it is opened: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ReadAll(file, path, most)
}

// ReadAll reads so many bytes at most from r, which errors call name.
func ReadAll(r io.Reader, name string, most int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return content, err
}
