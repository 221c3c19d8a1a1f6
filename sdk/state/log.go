package state

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	logName  = "names.log"
	freshLog = unfinished + logName
	// maxNames bounds the index.
	maxNames = 1_000_000
)

// Log keeps the records of many names in one file of a folder, to which it appends. It reads an
// index of all names when it is opened, and decrypts a record when it is loaded. Each record is
// sealed as a [Folder]'s, and bound to its name and place: a changed, copied or moved one is an
// error, and costs no other record.
//
// A Store returns once its record is on disk; those of many goroutines share an fsync. A crash loses
// what had not returned. When half of the file is out of date, a goroutine writes another one while
// records are stored and loaded. Without file locks and replaceable
// open files (Windows), nothing prevents two processes from using one log, and it only grows.
//
// Replay is not prevented, as for a Folder: an old file that is put back is authentic. It is safe for
// concurrent use.
type Log struct {
	path string
	key  []byte
	log  *slog.Logger
	disk disk

	files sync.RWMutex // held to use file, and to replace it
	work  sync.WaitGroup

	mu         sync.Mutex
	id         string
	file       diskFile
	index      index
	end        int64 // of what is durable
	dirty      bool  // bytes of a failed write may be behind end
	renamed    bool  // the name of file may not be durable
	compacting bool
	compactAt  int64      // not before the log has so many bytes
	fresh      *rewritten // the next file, once it has most of what is in this one
	waiting    []*write
	busy       bool // something appends, or replaces file
	closed     bool
}

// index has the latest record of each name.
type index struct {
	places map[string]place
	live   int64 // bytes of these records
}

// place is a record in the file.
type place struct {
	at, renew, ends int64
	size            int32
}

func newIndex(names int) index { return index{places: make(map[string]place, names)} }

// add takes a record in, and reports whether there was room.
func (x *index) add(f frame) bool {
	if old, ok := x.places[f.Record]; ok {
		x.live -= int64(old.size)
		delete(x.places, f.Record)
	}
	if f.Deleted || f.Record == "" {
		return true
	}
	if len(x.places) >= maxNames {
		return false
	}
	x.places[f.Record] = place{f.at, f.Renew, f.Ends, int32(f.size)} //nolint:gosec // G115: bounded by maxFrame
	x.live += f.size
	return true
}

var errLogClosed = ca.Errorf(ca.Unavailable, "the log of names is closed")

// OpenLog opens the log in the folder at path, or makes both. The key has 32 to 4096 bytes; see
// [CheckKey]. An existing folder must belong to this user or root and be closed to everyone else. A
// folder may have a log and the files of a [Folder] with the same key. What is damaged is logged by
// name. A log that no record of can be decrypted with the key is an error, and stays as it is. Close
// the Log to end its lock. The default of log is [slog.Default].
func OpenLog(path string, key []byte, log *slog.Logger) (*Log, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("the folder has no name")
	}
	folder, err := openDisk(path)
	if err != nil {
		return nil, errno.Explain(err)
	}
	l, err := openLog(path, key, folder, log)
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return l, nil
}

func openLog(path string, key []byte, folder disk, log *slog.Logger) (*Log, error) {
	l := &Log{path: path, key: append([]byte(nil), key...), disk: folder, log: cmp.Or(log, slog.Default()), index: newIndex(0)}
	file, err := folder.open(logName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = l.create()
	case err == nil:
		l.file, l.renamed = file, true // whether its rename is durable is unknown
		err = l.scan()
	}
	if err != nil {
		if l.file != nil {
			err = errors.Join(err, l.file.Close())
		}
		return nil, fmt.Errorf("failed to open %s in %s: %w", logName, path, errno.Explain(err))
	}
	return l, nil
}

// create makes an empty log.
func (l *Log) create() error {
	fresh, err := l.rewrite(nil, 0)
	if err == nil {
		err = l.replace(fresh)
	}
	if err != nil {
		return err
	}
	l.adopt(fresh)
	return l.syncName()
}

// scan reads the index.
func (l *Log) scan() error {
	size, err := l.file.Size()
	if err != nil {
		return err
	}
	s := scanner{file: l.file, size: size, key: l.key, found: l.found, damage: l.reportDamage}
	if err := s.run(); err != nil {
		return err
	}
	l.id, l.end, l.dirty = s.id, s.end, s.end < size
	return nil
}

func (l *Log) found(f frame) {
	if !l.index.add(f) {
		l.log.Error("the log of names has too many records", "folder", l.path, "name", f.Record, "most", maxNames)
	}
}

func (l *Log) reportDamage(d damage) {
	l.log.Warn("part of the log of names cannot be used: its records are lost", "folder", l.path, "name", d.name, "from", d.from, "to", d.to, "error", d.err)
}

// String returns the path of the folder.
func (l *Log) String() string { return l.path }

// GoString returns String, so that %#v does not show the key.
func (l *Log) GoString() string { return l.String() }

// Format writes String for every verb, so that no verb walks through the fields.
func (l *Log) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, l.String()) }

// Index returns an entry for each record, in any order, from memory. Its times are as of the file, in
// seconds: a forged one is found when its record is loaded.
func (l *Log) Index(context.Context) ([]secret.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := make([]secret.Entry, 0, len(l.index.places))
	for name, p := range l.index.places {
		entries = append(entries, secret.Entry{Name: name, Renew: timeOf(p.renew), Ends: timeOf(p.ends)})
	}
	return entries, nil
}

// Load returns the record of that name, the zero Record if there is none, or an error that names what
// is wrong with it. A Store that has not returned does not count. An error with the reason
// [ca.Unavailable] means that the disk could not be read, or that the log is closed.
func (l *Log) Load(_ context.Context, name string) (secret.Record, error) {
	l.files.RLock()
	defer l.files.RUnlock()
	l.mu.Lock()
	p, ok := l.index.places[name]
	file, id, end, closed := l.file, l.id, l.end, l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return secret.Record{}, errLogClosed
	case !ok:
		return secret.Record{}, nil
	}
	r, err := load(file, p.at, end, l.key, id, name)
	if err != nil {
		err = fmt.Errorf("record %.256q at byte %d of %s in %s: %w", name, p.at, logName, l.path, errno.Explain(err))
	}
	if errors.Is(err, errRead) && !errors.Is(err, io.EOF) {
		err = ca.Errorf(ca.Unavailable, "%w", err)
	}
	return r, err
}

func load(file diskFile, at, end int64, key []byte, id, name string) (secret.Record, error) {
	f, err := readFrame(file, at, end)
	if err != nil {
		return secret.Record{}, err
	}
	content, err := openFrame(file, f, key, id)
	switch {
	case err != nil:
		return secret.Record{}, err
	case f.Record != name:
		return secret.Record{}, fmt.Errorf("it is the record %.256q", f.Record)
	}
	return secret.Record{Identity: f.Identity, Authority: f.Authority, Content: content}, nil
}

// Close waits for what is being stored and closes the log. It may be called twice.
func (l *Log) Close() error {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	l.work.Wait()
	if was {
		return nil
	}
	l.files.Lock()
	defer l.files.Unlock()
	return errno.Explain(errors.Join(l.file.Close(), l.disk.Close()))
}

func newLogID() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it never fails
	return hex.EncodeToString(id)
}

// secondsOf rounds down: renewed a moment early, and never served too long.
func secondsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
