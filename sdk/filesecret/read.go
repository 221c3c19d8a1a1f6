package filesecret

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// maxFile bounds the size of a file. An operating system's bundle has about 220 kB.
const maxFile = 1 << 20

// readFile reads a regular file of at most 1 MiB.
func readFile(path string) ([]byte, error) {
	// Stat before opening: opening a named pipe would wait for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkFile(path, info); err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return readAll(file, path)
}

func checkFile(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}

func readAll(file *os.File, path string) ([]byte, error) {
	defer file.Close()
	var content bytes.Buffer
	if _, err := content.ReadFrom(io.LimitReader(file, maxFile+1)); err != nil {
		return nil, err
	}
	if content.Len() > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return content.Bytes(), nil
}
