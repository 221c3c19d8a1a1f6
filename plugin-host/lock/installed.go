package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/verified"
)

// Package is the lock file that a package put beside the providers that it installed. It pins them, and
// programs of the same package in other folders.
type Package struct {
	Path string
	Lock *Lock
}

// InstalledPath returns where a package puts the lock file of the providers that it installs
// into a folder: among them, so that it is replaced with them and after them. Further packages
// that install into the same folder have theirs beside it, as countersign-PACKAGE.lock.
func InstalledPath(folder string) string { return filepath.Join(folder, FileName) }

// InstalledPaths returns the paths of packages' lock files in a folder, in the order in which they count:
// first [InstalledPath], whether it exists or not, then the others by name.
func InstalledPaths(folder string) []string {
	paths := []string{InstalledPath(folder)}
	entries, _ := os.ReadDir(folder) // an unreadable folder has no providers either, which is reported for them
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, "countersign-") && filepath.Ext(name) == ".lock" {
			paths = append(paths, filepath.Join(folder, name))
		}
	}
	return paths
}

// Installed reads the lock files of packages in a folder. Unlike an operator's own lock file, one counts
// only if root alone could have put it there; the others are left out.
func Installed(folder string) (all []Package, err error) {
	for _, path := range InstalledPaths(folder) {
		if !verified.OnlyRootWrites(path) {
			continue
		}
		l, err := Read(path)
		if errors.Is(err, fs.ErrNotExist) { // removed just now
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Package{path, l})
	}
	return all, nil
}

// InstalledPin returns how a package pins a provider in a folder for this platform, and the path of the
// lock file that does; without one, the path is empty. Of two lock files that pin it, the first counts.
func InstalledPin(folder, provider string) (path string, build Provider, err error) {
	packages, err := Installed(folder)
	for _, p := range packages {
		if build, ok := p.Lock.Of(provider, runtime.GOOS, runtime.GOARCH); ok {
			return p.Path, build, nil
		}
	}
	return "", Provider{}, err
}
