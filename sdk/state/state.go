// Package state (experimental) stores an agent's secrets in an encrypted folder, so that they
// survive a restart. [Open] returns the [secret.Storage] for [secret.Config]; [OpenLog] returns one
// for the thousands of names of sdk/ondemand. The caller provides the key; [ReadKey] reads one from
// a file. A lock serializes writes.
//
// Each record of a [Folder] is one file: a line with the format's version, a line of JSON that describes
// the record, and the content, encrypted with AES-256-GCM. Each write uses a new
// key, derived from the folder's key and a random salt by HKDF-SHA256. Both lines are
// authenticated with the content, so no file can be changed or pass for another.
//
// Replay is not prevented: an old file put back is authentic. It may restore an older
// certificate while that is valid, and the roots served with it until then; see
// docs/decisions. Without file modes (Windows), the folder's access is not checked.
package state

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
	// maxFile leaves room for the roots of an operating system.
	maxFile = 4 << 20

	suffix     = ".state"
	unfinished = ".new-"
)

// Folder is a folder of encrypted records for a single agent. The first Store creates it.
// It is safe for concurrent use.
type Folder struct {
	path string
	key  []byte
	mu   sync.Mutex // the temporary file of a record has a fixed name
}

var _ secret.Storage = (*Folder)(nil)

// Open returns the folder at path with a key of 32 to 4096 bytes; see [CheckKey]. An
// existing folder must belong to this user or root and be closed to everyone else.
func Open(path string, key []byte) (*Folder, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("the folder has no name")
	}
	if err := checkFolder(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &Folder{path: path, key: append([]byte(nil), key...)}, nil
}

// String returns the path.
func (f *Folder) String() string { return f.path }

// GoString returns String, so that %#v does not show the key.
func (f *Folder) GoString() string { return f.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (f *Folder) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, f.String()) }

func checkFolder(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder (%s): name a folder, not a link to one", path, info.Mode().Type())
	}
	return checkPrivate(path, info)
}

// Load returns the record of that name, the zero Record if there is none, or an error that
// names what is wrong with its file.
func (f *Folder) Load(_ context.Context, name string) (secret.Record, error) {
	root, err := f.root()
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Record{}, nil
	}
	if err != nil {
		return secret.Record{}, errno.Explain(err)
	}
	defer func() { _ = root.Close() }() // only read, so the error does not matter
	text, err := readPrivate(root, fileName(name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Record{}, nil
	}
	if err == nil {
		var r secret.Record
		if r, err = open(f.key, name, text); err == nil {
			return r, nil
		}
	}
	return secret.Record{}, fmt.Errorf("%s in %s: %w", fileName(name), f.path, errno.Explain(err))
}

// root opens the folder after repeating Open's checks.
func (f *Folder) root() (*os.Root, error) {
	if err := checkFolder(f.path); err != nil {
		return nil, err
	}
	return os.OpenRoot(f.path)
}

// readPrivate returns a file's content, of so many bytes at most. It accepts only a private regular file:
// a pipe would block, and a link may lead anywhere.
func readPrivate(root *os.Root, name string, most int64) ([]byte, error) {
	return safefile.ReadWithin(root, name, most, func(info fs.FileInfo) error { return checkPrivate("it", info) })
}

// checkPrivate rejects what others may access and what neither root nor this user owns.
func checkPrivate(what string, info fs.FileInfo) error {
	return safefile.CheckAccess(what, info, 0o077)
}

// Store writes the record, or removes its file if it has no content. The old file stays
// until the new one is on disk.
func (f *Folder) Store(_ context.Context, name string, r secret.Record) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(f.path, folderMode); err != nil {
		return errno.Explain(err)
	}
	root, err := f.root()
	if err != nil {
		return errno.Explain(err)
	}
	defer func() { err = errno.Explain(errors.Join(err, root.Close())) }()
	if len(r.Content) == 0 {
		return remove(root, fileName(name))
	}
	return f.write(root, name, r)
}

func remove(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return safefile.Sync(root)
}

func (f *Folder) write(root *os.Root, name string, r secret.Record) error {
	text, err := seal(f.key, name, r, rand.Reader)
	if err != nil {
		return err
	}
	fresh := unfinished + fileName(name)
	if err := safefile.Create(root, fresh, safefile.File{Mode: fileMode, Content: text}); err != nil {
		return errors.Join(err, root.RemoveAll(fresh))
	}
	if err := root.Rename(fresh, fileName(name)); err != nil {
		return errors.Join(err, root.RemoveAll(fresh))
	}
	return safefile.Sync(root)
}

// fileName returns the name of a record's file: short for any record name, and it does not
// reveal that name.
func fileName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(hex.EncodeToString(sum[:16])) + suffix
}
