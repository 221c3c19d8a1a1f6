// Package state keeps an agent's secrets in a folder over a restart, encrypted:
// [Open] returns the [secret.Storage] for [secret.Config]. The key comes from the
// caller; [ReadKey] reads one from a file.
//
// Each record is a file of its own: a line with the format's version, a line of JSON
// that says whose it is, and the content, encrypted by AES-256-GCM with a key of that
// write's own (HKDF-SHA256 of the folder's key with a random salt). Both lines are
// authenticated with the content, so that none can be changed or stand in for another.
//
// What this does not protect: an old file that is put back is authentic. It may bring
// back an older certificate while that is valid, and the roots that were served with
// it until then; see docs/decisions. On systems without file modes (windows) who may
// read the folder is not checked.
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

	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
	// maxFile has room for the roots of an operating system.
	maxFile = 4 << 20

	suffix     = ".state"
	unfinished = ".new-"
)

// Folder is a folder of encrypted records. It is for one agent alone, and is made
// when the first record is stored. Its methods may be called by several goroutines at
// once.
type Folder struct {
	path string
	key  []byte
	mu   sync.Mutex // an unfinished file has one name
}

var _ secret.Storage = (*Folder)(nil)

// Open returns the folder at path with a key of 32 bytes or more; see [CheckKey]. A
// folder that is there must be this user's own and nobody else's to look into.
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

// GoString returns String: %#v must not show the key.
func (f *Folder) GoString() string { return f.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (f *Folder) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, f.String()) }

func checkFolder(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder (%s): name a folder, not a link to one", path, info.Mode().Type())
	}
	return checkPrivate(path, info)
}

// Load returns the record of that name, or an error that says why its file is not
// good.
func (f *Folder) Load(_ context.Context, name string) (secret.Record, error) {
	root, err := f.root()
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Record{}, nil
	}
	if err != nil {
		return secret.Record{}, err
	}
	defer func() { _ = root.Close() }() // it was only read
	text, err := read(root, fileName(name))
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Record{}, nil
	}
	if err == nil {
		var r secret.Record
		if r, err = open(f.key, name, text); err == nil {
			return r, nil
		}
	}
	return secret.Record{}, fmt.Errorf("%s in %s: %w", fileName(name), f.path, err)
}

// root opens the folder, which must still be what Open checked.
func (f *Folder) root() (*os.Root, error) {
	if err := checkFolder(f.path); err != nil {
		return nil, err
	}
	return os.OpenRoot(f.path)
}

// read returns a file's content. It must be a regular file of our own: a pipe would
// have us wait, and a link may lead anywhere.
func read(root *os.Root, name string) ([]byte, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file (%s)", before.Mode().Type())
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !os.SameFile(before, info):
		return nil, errors.New("it was replaced while it was opened")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes, %d are allowed", info.Size(), maxFile)
	}
	if err := checkPrivate("it", info); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// Store writes the record, or removes its file where it has no content. What was there
// stays until the new file is on the disk.
func (f *Folder) Store(_ context.Context, name string, r secret.Record) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(f.path, folderMode); err != nil {
		return err
	}
	root, err := f.root()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
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

// fileName is the name of a record's file: whatever the record is called, it is a
// short one, and tells nobody whose it is.
func fileName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(hex.EncodeToString(sum[:16])) + suffix
}
