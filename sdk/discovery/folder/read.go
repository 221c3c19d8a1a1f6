package folder

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	maxFile  = 4 << 20 // bytes
	maxTotal = 64 << 20
	maxFiles = 1000
)

type digest = [sha256.Size]byte

// names returns the files to read, sorted: those ending in .yaml, .yml or .json, except
// hidden ones, which editors and Kubernetes (..data) create.
func names(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("cannot read the folder: %w", err)
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		ours := slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(name)))
		if ours && !strings.HasPrefix(name, ".") && !entry.IsDir() {
			files = append(files, name)
		}
	}
	if len(files) > maxFiles {
		return nil, fmt.Errorf("the folder has %d files, more than %d", len(files), maxFiles)
	}
	return files, nil
}

// read returns the content of a file. It opens only regular files: a pipe would block
// until a writer comes.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	file, err := os.Open(path) //nolint:gosec // the operator's own folder
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes; split it", maxFile)
	}
	return content, err
}
