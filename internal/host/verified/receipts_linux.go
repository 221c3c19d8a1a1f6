package verified

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	receiptsFile = "receipts.json"
	maxReceipts  = 64
	maxReceiptIO = 64 << 10
	// settledFor is the minimum age of a file's last change: two changes within one tick
	// of the file system's clock have the same time.
	settledFor = 2 * time.Second
)

// receipt is the state of a file when it was hashed. The kernel sets ctime by its own
// clock, and only root can set that back. So a file that only root can write and whose
// receipt still fits has the same content.
type receipt struct {
	Device  uint64    `json:"device"`
	Inode   uint64    `json:"inode"`
	Size    int64     `json:"size"`
	Written time.Time `json:"written"` // mtime
	Changed time.Time `json:"changed"` // ctime
	SHA256  string    `json:"sha256"`
}

// fits reports whether both are the same file in the same state.
func (r receipt) fits(now receipt) bool {
	return r.Device == now.Device && r.Inode == now.Inode && r.Size == now.Size &&
		r.Written.Equal(now.Written) && r.Changed.Equal(now.Changed) && len(r.SHA256) == 64
}

// find returns the SHA-256 of the file at path, or "" if it must be hashed.
func (r Receipts) find(path string, now receipt) string {
	if r.Folder == "" {
		return ""
	}
	all, err := r.read()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Log.Debug("cannot read receipts, hashing the file", "error", err)
	}
	if kept := all[path]; kept.fits(now) {
		return kept.SHA256
	}
	return ""
}

// keep records the SHA-256 of a file that stayed in state now while it was read.
func (r Receipts) keep(path string, now receipt) {
	if r.Folder == "" || time.Since(now.Changed) < settledFor {
		return
	}
	all, err := r.read()
	if err != nil || len(all) >= maxReceipts {
		all = map[string]receipt{} // start over: it is a cache
	}
	all[path] = now
	if err := r.write(all); err != nil {
		r.Log.Debug("cannot write a receipt", "error", err)
	}
}

func (r Receipts) read() (map[string]receipt, error) {
	file, err := openPrivate(filepath.Join(r.Folder, receiptsFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxReceiptIO))
	if err != nil {
		return nil, err
	}
	var all map[string]receipt
	return all, json.Unmarshal(text, &all)
}

// write replaces the file atomically, for agents that start at the same time.
func (r Receipts) write(all map[string]receipt) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.Folder, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(r.Folder, receiptsFile+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(r.Folder, receiptsFile))
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

func receiptOf(info os.FileInfo) receipt {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return receipt{}
	}
	return receipt{
		Device: st.Dev, Inode: st.Ino, Size: st.Size,
		Written: time.Unix(st.Mtim.Unix()), Changed: time.Unix(st.Ctim.Unix()),
	}
}

// openPrivate opens a file that only this user can have written.
func openPrivate(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) != os.Geteuid() || info.Mode() != 0o600 {
			err = fmt.Errorf("%s is not a file of this user with mode 0600", path)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
