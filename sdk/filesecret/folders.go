package filesecret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// errForbidden: a link leads out of the allowed folders.
var errForbidden = errors.New("it lies outside the folders that names of files may read from")

// folders are those that dynamic names may read from, as absolute paths. They may
// themselves be links: that is the operator's choice.
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

// allow tells whether a path, by its name alone, lies in one of the folders.
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

// read reads a file that lies in one of the folders when all links are followed.
// It is opened from that folder by [os.Root], so that a link that is put in its
// way meanwhile does not lead out either.
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
			continue // it is not there
		}
		if name, ok := below(folder, real); ok {
			return readBelow(folder, name, path)
		}
	}
	return nil, fmt.Errorf("%.256q: %w", path, errForbidden)
}

func readBelow(folder, name, path string) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if err := checkFile(path, info); err != nil {
		return nil, err
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	return readAll(file, path)
}

// below returns the name of path below folder.
func below(folder, path string) (name string, ok bool) {
	name, ok = strings.CutPrefix(path, strings.TrimSuffix(folder, string(filepath.Separator))+string(filepath.Separator))
	return name, ok && name != ""
}
