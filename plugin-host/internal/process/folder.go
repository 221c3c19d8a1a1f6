package process

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/internal/host/verified"
)

// maxRuntimePath leaves room for a socket's name within the 107 bytes of its path.
const maxRuntimePath = 80

// runtimePrefix of private folders. It is unique to them: sweep removes leftovers by it.
const runtimePrefix = ".countersign-run-"

// Folder is the private folder of one start. Its host holds a lock on it, so that other
// hosts can recognize leftovers.
type Folder struct {
	Path string
	lock *os.File
}

// NewFolder makes a folder below base and removes leftovers of hosts that are gone.
func NewFolder(base string) (*Folder, error) {
	sweep(base)
	base, err := filepath.Abs(base)
	if err != nil {
		return nil, err
	}
	d, err := makeLocked(base)
	if err != nil {
		return nil, fmt.Errorf("create a private folder for the provider: %w", err)
	}
	if len(d.Path) > maxRuntimePath {
		d.Remove()
		return nil, fmt.Errorf("runtime_dir %q is too long for sockets: the folder %s has %d bytes, the limit is %d", base, d.Path, len(d.Path), maxRuntimePath)
	}
	return d, nil
}

// makeLocked makes a folder and locks it. In between it looks like a leftover and another
// start may sweep it away, so it tries again.
func makeLocked(base string) (*Folder, error) {
	var lost error
	for range 20 {
		path, err := os.MkdirTemp(base, runtimePrefix)
		if err != nil {
			return nil, err
		}
		lock, err := lockDir(path)
		if err != nil {
			_ = os.Remove(path) // unless a sweep was faster
			lost = fmt.Errorf("lock %s: %w", path, err)
			continue
		}
		d := &Folder{path, lock}
		if d.isThere() {
			return d, nil
		}
		closeAll(lock)
		lost = fmt.Errorf("lock %s: it was removed in the meantime", path)
	}
	return nil, lost
}

// Remove removes the folder and releases its lock.
func (d *Folder) Remove() {
	_ = os.RemoveAll(d.Path)
	closeAll(d.lock)
}

// sweep removes our folders that no host has locked. A provider with a user of its own owns
// its folder, so root removes all that have the name.
func sweep(base string) {
	left, _ := filepath.Glob(filepath.Join(base, runtimePrefix+"[0-9]*"))
	for _, path := range left {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() || os.Geteuid() != 0 && verified.CheckOwner(path, path, info) != nil {
			continue
		}
		if lock, err := lockDir(path); err == nil {
			(&Folder{path, lock}).Remove()
		}
	}
}
