package lock

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/countersign-dev/countersign/internal/host/verified"
)

// InstalledPath returns where a package puts the lock file of the providers that it installs
// into a folder: among them, so that it is replaced with them and after them.
func InstalledPath(folder string) string { return filepath.Join(folder, FileName) }

// Installed reads a package's lock file of a folder. It returns nil if there is none that counts:
// unlike an operator's own lock file, it has to be one that root alone could have put there.
func Installed(folder string) (*Lock, error) {
	path := InstalledPath(folder)
	if !verified.OnlyRootWrites(path) {
		return nil, nil
	}
	l, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) { // removed just now
		return nil, nil
	}
	return l, err
}
