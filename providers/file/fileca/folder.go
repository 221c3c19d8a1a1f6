package fileca

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const lockTimeout = 10 * time.Second

// folder is a folder that only this user can write to, locked against other processes.
// Every access is through its handle, so that it is to the folder whose owner was checked.
type folder struct {
	root   *os.Root
	handle *os.File // has the lock
	dir    string
}

// errLocked means that another process keeps the lock.
var errLocked = errors.New("it is locked by another process")

// folderError is a failure of lockFolder, which passes only if the folder is locked.
func folderError(what, dir string, err error) error {
	reason := ca.Invalid
	if errors.Is(err, errLocked) {
		reason = ca.Unavailable
	}
	return ca.Errorf(reason, "%s: %s: %w", what, dir, err)
}

// lockFolder waits for the lock. The caller closes the folder.
func lockFolder(ctx context.Context, dir string, log *slog.Logger) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	handle, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	f := &folder{root, handle, dir}
	if err := checkOwner(handle, dir, log); err != nil {
		f.close()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := lock(ctx, handle); err != nil {
		f.close()
		return nil, fmt.Errorf("%w: %w", errLocked, err)
	}
	return f, nil
}

func (f *folder) close() {
	_ = f.handle.Close() // releases the lock
	_ = f.root.Close()
}

// has reports whether the name exists, even as a dangling link.
func (f *folder) has(name string) bool {
	_, err := f.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// keep returns the content of the file, and creates it first if necessary.
func (f *folder) keep(name string, mode fs.FileMode, content func() ([]byte, error)) ([]byte, error) {
	if f.has(name) {
		return setting.File(filepath.Join(f.dir, name)).Read()
	}
	made, err := content()
	if err != nil {
		return nil, err
	}
	return made, f.write(name, mode, made)
}

// write creates or replaces the file atomically and syncs it to disk.
func (f *folder) write(name string, mode fs.FileMode, content []byte) error {
	unfinished := "." + name + ".new"
	// Left by an interrupted start: under the lock, no other process writes it.
	if err := f.root.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.root.OpenFile(unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = f.root.Rename(unfinished, name)
	}
	if err != nil {
		return errors.Join(err, f.root.Remove(unfinished))
	}
	return syncFolder(f.handle)
}
