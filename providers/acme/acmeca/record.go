package acmeca

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	maxRecord = 256 << 10
	// maxRecords bounds the files of one folder.
	maxRecords = 4096
	// keepOrder is how long an order is kept without a request for it.
	keepOrder = 24 * time.Hour
	// lockPause is the time between two looks at a lock of another process.
	lockPause = 100 * time.Millisecond
)

// record is an order as it is kept: a repeat of its request, by another call or process,
// goes on with it, and gets the same certificate.
type record struct {
	Account string `json:"account"`         // that made the order
	Order   string `json:"order"`           // its URL; empty: there is none yet
	Chain   string `json:"chain,omitempty"` // the certificate, when it is done
}

// recordName is that of the file for a request: a repeat has the same ID and CSR.
func recordName(id string, csr []byte) string {
	sum := sha256.Sum256(append([]byte(id+"\x00"), csr...))
	return hex.EncodeToString(sum[:])
}

// load returns the record of that name; the zero value if there is none.
func load[T any](f *folder, name string) (kept T, err error) {
	content, _, err := f.read(name+".json", maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err != nil {
		return kept, unusable(err)
	}
	var whole T
	if json.Unmarshal(content, &whole) == nil {
		kept = whole // a new one replaces any other
	}
	return kept, nil
}

func store[T any](f *folder, name string, one T) error {
	content, err := json.Marshal(one)
	if err != nil {
		return unusable(err)
	}
	return unusable(f.write(name+".json", content, privateFile))
}

func (f *folder) drop(name string) { _ = f.root.Remove(name + ".json") } // a file that stays is found to be over

// lock makes this the only one to drive an order, also among processes. It waits for as long
// as ctx lasts.
func (f *folder) lock(ctx context.Context, name string) (unlock func(), err error) {
	name += ".lock"
	for {
		file, err := f.root.OpenFile(name, os.O_CREATE|os.O_RDWR, privateFile)
		if err != nil {
			return nil, unusable(err)
		}
		if err := locked(ctx, file); err != nil {
			return nil, errors.Join(unusable(err), file.Close())
		}
		if f.is(name, file) {
			return func() { _, _ = f.root.Remove(name), file.Close() }, nil
		}
		_ = file.Close() // it was removed before it was locked: another has the name now, or none
	}
}

// locked waits for the lock of a file.
func locked(ctx context.Context, file *os.File) error {
	for {
		got, err := tryLock(file)
		if got || err != nil {
			return err
		}
		if err := sleep(ctx, lockPause); err != nil {
			return err
		}
	}
}

// is reports whether a file has that name now.
func (f *folder) is(name string, file *os.File) bool {
	named, err := f.root.Stat(name)
	if err != nil {
		return false
	}
	opened, err := file.Stat()
	return err == nil && os.SameFile(named, opened)
}

// tidy removes what is older than a time, and refuses to add to a folder that is full.
func (f *folder) tidy(before time.Time) error {
	dir, err := f.root.Open(".")
	if err != nil {
		return unusable(err)
	}
	defer func() { _ = dir.Close() }() // it was only read
	entries, err := dir.ReadDir(2*maxRecords + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return unusable(err)
	}
	left := 0
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.ModTime().Before(before) && f.root.Remove(entry.Name()) == nil {
			continue
		}
		left++
	}
	if left > 2*maxRecords {
		full := ca.Errorf(ca.RateLimited, "state_dir: there are more than %d orders of the last %s", maxRecords, keepOrder)
		full.RetryAfter = time.Minute
		return full
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
