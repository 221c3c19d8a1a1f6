package citadelca

import (
	"fmt"
	"io"
	"os"
)

// maxFile is what is taken of PEM elsewhere, too.
const maxFile = 1 << 20

// readFile reads a regular file of 1 MiB at most.
func readFile(path string) ([]byte, error) {
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
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return content, err
}
