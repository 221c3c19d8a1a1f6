package filesecret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// errForbidden means that the path or a link leads out of the allowed folders.
var errForbidden = errors.New("it lies outside the folders that names of files may read from")

// folders are the absolute paths that dynamic names may read from. The operator may
// configure links to folders.
type folders []string

func newFolders(paths []string) (folders, error) {
	var all folders
	for _, path := range paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("folder %q: %w", path, err)
		}
		if path == "" || filepath.Dir(absolute) == absolute {
			return nil, fmt.Errorf("folder %q: it would allow every file; name the folders that hold certificates", path)
		}
		all = append(all, absolute)
	}
	return all, nil
}

// allow reports whether the path itself, links aside, lies in one of the folders.
func (f folders) allow(path string) bool {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	for _, folder := range f {
		if _, ok := below(folder, absolute); ok {
			return true
		}
	}
	return false
}

// read reads a file that lies in one of the folders after all links are resolved. It opens
// the file through [os.Root], so a link created meanwhile cannot lead out either.
func (f folders) read(path string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, err
	}
	for _, folder := range f {
		folder, err := filepath.EvalSymlinks(folder)
		if err != nil {
			continue // it does not exist
		}
		if name, ok := below(folder, real); ok {
			return readBelow(folder, name, path)
		}
	}
	return nil, fmt.Errorf("%.256q: %w", path, errForbidden)
}

// readFile reads a file of the configuration.
func readFile(path string) ([]byte, error) { return safefile.Read(path, maxFile) }

func readBelow(folder, name, path string) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read, so the error does not matter
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read, too
	return safefile.ReadAll(file, path, maxFile)
}

// below returns path relative to folder; ok is false if it is not below.
func below(folder, path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path, strings.TrimSuffix(folder, string(filepath.Separator))+string(filepath.Separator))
	return name, ok && name != ""
}
