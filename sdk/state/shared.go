package state

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// sharedLog marks the records of a shared folder, so that no [Folder] or [Log] takes one.
	sharedLog = "shared"
	// idBytes is the size of random names.
	idBytes = 16
	// readTries is how often a file is read that is stale.
	readTries = 3
)

// Shared is a folder of encrypted records that several machines share, such as one on NFS: it is the
// SharedStorage of package ondemand. Each record is one file, named by a hash of its name, in one of 256
// subfolders, and replaced by a rename. All machines need the same key and run as the same user.
//
// The file system must have hard links, and a rename that replaces a file at once. The claim of a name
// is a file beside the record, made with link, so that a client of NFS that caches the folder reads it
// anew. No lock of the file system is used. Its holder counts in that file; a count that stands still
// for 15 s, by the clock of the machine that looks, ends the claim. Changes of others are seen once
// the client shows the new modification times of the subfolders: on NFS, mount with actimeo=1.
type Shared struct {
	path string
	key  []byte
	log  *slog.Logger

	foreign, damaged atomic.Int64
	read             func(sub *os.Root, file string, most int64) ([]byte, error) // a test puts faults into it

	mu      sync.Mutex
	mark    string             // of the folder; empty before the first call
	watched map[string]watched // claims of others, by file
	looks   sync.Mutex         // one look runs
	seen    map[string]*subdir // by name; looks guards it
}

// OpenShared returns the shared folder at path with a key of 32 to 4096 bytes; see [CheckKey]. It does
// not look at the folder, which may be away now. The default of log is [slog.Default].
func OpenShared(path string, key []byte, log *slog.Logger) (*Shared, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("the folder has no name")
	}
	if log == nil {
		log = slog.Default()
	}
	return &Shared{path: path, key: append([]byte(nil), key...), log: log, read: readPrivate, watched: map[string]watched{}, seen: map[string]*subdir{}}, nil
}

// Status counts the files that cannot be used: foreign ones in the place of a claim, which are removed,
// and damaged records, which stay until they are replaced.
func (s *Shared) Status() secret.StorageStatus {
	return secret.StorageStatus{Foreign: s.foreign.Load(), Damaged: s.damaged.Load()}
}

// String returns the path.
func (s *Shared) String() string { return s.path }

// GoString returns String, so that %#v does not show the key.
func (s *Shared) GoString() string { return s.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (s *Shared) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Load implements the SharedStorage of package ondemand. An error with the reason [ca.Unavailable] means
// that the folder could not be read; a file that cannot be while the folder can is a damaged record.
func (s *Shared) Load(_ context.Context, name string) (secret.Record, error) {
	file := fileName(name)
	sub, err := s.subfolder(file, false)
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Record{}, nil
	}
	if err != nil {
		return secret.Record{}, s.away(err)
	}
	defer func() { _ = sub.Close() }() // only read, so the error does not matter
	text, err := s.text(sub, file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Record{}, nil
	}
	if _, system := errors.AsType[*fs.PathError](err); system && !s.ofOneFile(err) {
		return secret.Record{}, s.away(err)
	}
	var h header
	var content []byte
	if err == nil {
		h, content, err = openAny(s.key, text)
	}
	switch {
	case err != nil:
	case h.Record != name:
		err = fmt.Errorf("it is the record %.256q under the name of another", h.Record)
	case h.Log != sharedLog:
		err = errors.New("it is not a record of a shared folder")
	default:
		return secret.Record{Identity: h.Identity, Authority: h.Authority, Content: content}, nil
	}
	s.damaged.Add(1)
	return secret.Record{}, fmt.Errorf("%s in %s: %w", file, s.path, err)
}

// Store implements the SharedStorage of package ondemand. It replaces nothing once ctx has ended: after a
// call that hung, the claim may be that of another machine.
func (s *Shared) Store(ctx context.Context, e secret.Entry, r secret.Record) (err error) {
	file, h := fileName(e.Name), header{Record: e.Name, Identity: r.Identity, Authority: r.Authority}
	h.position = position{Log: sharedLog}
	if !e.Ends.IsZero() {
		h.Renew, h.Ends = e.Renew.Unix(), e.Ends.Unix()
	}
	text, err := sealAs(s.key, h, r.Content, rand.Reader)
	if err != nil {
		return err
	}
	sub, err := s.subfolder(file, true)
	if err != nil {
		return s.away(err)
	}
	defer func() { err = s.away(errors.Join(err, sub.Close())) }()
	fresh := unfinished + randomID()
	err = safefile.Create(sub, fresh, safefile.File{Mode: fileMode, Content: text})
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = replace(sub, fresh, file)
	}
	if err != nil {
		return errors.Join(err, sub.RemoveAll(fresh))
	}
	return safefile.Sync(sub)
}

// text reads a file. One that another machine replaces meanwhile is stale on NFS, and read anew.
func (s *Shared) text(sub *os.Root, file string, most int64) ([]byte, error) {
	text, err := s.read(sub, file, most)
	for tries := 1; errors.Is(err, syscall.ESTALE) && tries < readTries; tries++ {
		text, err = s.read(sub, file, most)
	}
	return text, err
}

// replace renames a record to its name. A folder of that name, which a rename does not replace, becomes
// litter.
func replace(sub *os.Root, fresh, file string) error {
	err := sub.Rename(fresh, file)
	if info, there := sub.Lstat(file); err == nil || there != nil || !info.IsDir() {
		return err
	}
	if err := sub.Rename(file, unfinished+randomID()); err != nil {
		return err
	}
	return sub.Rename(fresh, file)
}

// ofOneFile reports whether a file cannot be read, with a fault that other machines may not have, while the
// folder can be.
func (s *Shared) ofOneFile(err error) bool {
	if !broken(err) && !errors.Is(err, fs.ErrPermission) {
		return false
	}
	root, err := s.root() // reads the mark
	if err != nil {
		return false
	}
	_ = root.Close() // it was only read
	return true
}

// broken reports whether the disk below a file is damaged.
func broken(err error) bool { return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG) }

// Delete implements the SharedStorage of package ondemand. It deletes nothing once ctx has ended, as Store.
func (s *Shared) Delete(ctx context.Context, name string) (err error) {
	file := fileName(name)
	sub, err := s.subfolder(file, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.away(err)
	}
	defer func() { err = s.away(errors.Join(err, sub.Close())) }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return remove(sub, file)
}

// away returns an error of the folder, which is not about a record.
func (s *Shared) away(err error) error {
	if err == nil {
		return nil
	}
	return ca.Errorf(ca.Unavailable, "the shared folder %s cannot be used: %w", s.path, errno.Explain(err))
}

// subfolder opens the subfolder of a file. With create it makes the subfolder; without, the error
// is [fs.ErrNotExist] if it is missing.
func (s *Shared) subfolder(file string, create bool) (*os.Root, error) {
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // what is made in it is synced
	name := file[:2]
	if create {
		err = root.Mkdir(name, folderMode)
		switch {
		case err == nil:
			err = safefile.Sync(root)
		case errors.Is(err, fs.ErrExist):
			err = nil
		}
		if err != nil {
			return nil, err
		}
	}
	if err := checkSubfolder(root, name); err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

func checkSubfolder(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder (%s)", name, info.Mode().Type())
	}
	return checkPrivate(name, info)
}

// root opens the folder after checking that it is private, and the one of before.
func (s *Shared) root() (_ *os.Root, err error) {
	if err := checkFolder(s.path); err != nil {
		if _, system := errors.AsType[*fs.PathError](err); !system {
			return nil, unfit{err}
		}
		return nil, missing(err)
	}
	root, err := os.OpenRoot(s.path)
	if err != nil {
		return nil, missing(err)
	}
	if err := s.checkMark(root); err != nil {
		_ = root.Close() // it was only read
		return nil, missing(err)
	}
	return root, nil
}

// missing returns an error about the folder itself, which must not pass for an absent record.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: mount it, or make it with mode 0700", err) //nolint:errorlint // see above
	}
	return err
}

// unfit is a folder that an operator has to change.
type unfit struct{ error }

func (u unfit) Unwrap() error { return u.error }

func randomID() string {
	var id [idBytes]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}
