package folder

import (
	"crypto/sha256"
	"fmt"
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
