package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// pollEvery is the pause between two looks for changes, restFactor the least ratio of a pause to the
	// time that a look took.
	pollEvery  = time.Second
	restFactor = 10
	// lookAtAll is how often each subfolder is read, changed or not.
	lookAtAll = 10 * time.Minute
	// litterAfter is when a file is removed that a killed machine has left unfinished.
	litterAfter = 10 * time.Minute
	// subfolders is their number.
	subfolders = 256
)

// subdir is a subfolder as it was read last.
type subdir struct {
	changed time.Time // its modification time
	settled bool      // that was the same at the look before: coarse times may hide a change
	files   map[string]known
	litter  map[string]time.Time // unfinished files, with the time when they were first seen
}

// known is a record that was reported. Its name is empty if the file is not a record.
type known struct {
	changed time.Time
	size    int64
	inode   uint64 // another one, where two machines replaced the record within one tick of coarse times
	name    string
	fault   string // of the system, when it could not be read; each look tries again
}

// news is what to report.
type news struct {
	entry   secret.Entry
	deleted bool
}

// Index implements the SharedStorage of package ondemand. The times of the entries are as of the files,
// in seconds: a forged one is found when its record is loaded.
func (s *Shared) Index(ctx context.Context) (entries []secret.Entry, err error) {
	s.looks.Lock()
	defer s.looks.Unlock()
	seen := map[string]*subdir{}
	err = s.look(ctx, seen, func(n news) { entries = append(entries, n.entry) })
	if err == nil && ctx.Err() != nil { // the caller may have gone: Changes reports each record
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.seen = seen
	return entries, nil
}

// Changes implements the SharedStorage of package ondemand.
func (s *Shared) Changes(ctx context.Context, changed func(e secret.Entry, deleted bool)) error {
	all := time.Now()
	for {
		whole := time.Since(all) >= lookAtAll
		if whole {
			all = time.Now()
		}
		began := time.Now()
		if err := s.lookAgain(ctx, whole, func(n news) { changed(n.entry, n.deleted) }); err != nil {
			return s.away(err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(pollEvery, restFactor*time.Since(began))):
		}
	}
}

// lookAgain reports what has changed since the last look, by the times of the subfolders unless it is
// whole.
func (s *Shared) lookAgain(ctx context.Context, whole bool, report func(news)) error {
	s.looks.Lock()
	defer s.looks.Unlock()
	for _, d := range s.seen {
		d.settled = d.settled && !whole
	}
	return s.look(ctx, s.seen, report)
}

// look reports what has changed since seen, which it updates.
func (s *Shared) look(ctx context.Context, seen map[string]*subdir, report func(news)) error {
	root, err := s.root()
	if err != nil {
		if _, found := errors.AsType[unfit](err); found {
			return err
		}
		return s.away(err)
	}
	defer func() { _ = root.Close() }() // only read, so the error does not matter
	var bad []error
	for i := range subfolders {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name := fmt.Sprintf("%02x", i)
		if seen[name] == nil {
			seen[name] = &subdir{files: map[string]known{}, litter: map[string]time.Time{}}
		}
		damaged, err := s.lookAt(root, name, seen[name], report)
		if err != nil && s.checkMark(root) != nil {
			return s.away(err)
		}
		if err != nil {
			damaged = append(damaged, seen[name].fails(name, err)...)
		}
		bad = append(bad, damaged...)
	}
	if len(bad) > 0 {
		s.damaged.Add(int64(len(bad)))
		s.log.Warn("files in the shared folder cannot be used as records", "folder", s.path, "files", len(bad), "first", bad[0])
	}
	return nil
}

// fails notes that a subfolder or, with a name within it, a file cannot be read while the folder can. It
// returns what to report, which is nothing if the fault is that of the look before.
func (d *subdir) fails(name string, err error) []error {
	k := d.files[name]
	before := k.fault
	k.changed, k.fault = time.Time{}, err.Error()
	d.files[name], d.settled, d.changed = k, false, time.Time{}
	if before == k.fault {
		return nil
	}
	return []error{fmt.Errorf("%.256q: %w", name, err)}
}

// lookAt is look for one subfolder. It returns what is wrong with files.
func (s *Shared) lookAt(root *os.Root, name string, d *subdir, report func(news)) (bad []error, err error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(d.files) == 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	same := info.ModTime().Equal(d.changed)
	if same && d.settled {
		return nil, nil
	}
	d.settled, d.changed = same, info.ModTime()
	if err := checkSubfolder(root, name); err != nil {
		return nil, err
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Close() }()
	bad, err = s.list(root, sub, d, report)
	if err != nil {
		d.settled, d.changed = false, time.Time{}
	}
	return bad, err
}

// list reads the files of a subfolder of root.
func (s *Shared) list(root, sub *os.Root, d *subdir, report func(news)) (bad []error, err error) {
	folder, err := sub.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := folder.Readdirnames(-1)
	if err := errors.Join(err, folder.Close()); err != nil {
		return nil, err
	}
	there, litter := map[string]bool{}, map[string]time.Time{}
	for _, file := range names {
		switch {
		case strings.HasSuffix(file, suffix):
			there[file] = true
			err := s.lookAtFile(sub, file, d, report)
			switch _, system := errors.AsType[*fs.PathError](err); {
			case system && s.checkMark(root) != nil:
				return bad, err
			case system:
				bad = append(bad, d.fails(file, err)...)
			case err != nil:
				bad = append(bad, fmt.Errorf("%.256q: %w", file, err))
			}
		case strings.HasPrefix(file, unfinished), strings.Contains(file, afterPrefix):
			first, ok := d.litter[file]
			if !ok {
				first = time.Now()
			}
			if time.Since(first) < litterAfter {
				litter[file] = first
			} else {
				_ = sub.Remove(file)
			}
		}
	}
	d.litter = litter
	for file, k := range d.files {
		if !there[file] {
			delete(d.files, file)
			if k.name != "" {
				report(news{secret.Entry{Name: k.name}, true})
			}
		}
	}
	return bad, nil
}

// lookAtFile reports a record that is new or has changed.
func (s *Shared) lookAtFile(sub *os.Root, file string, d *subdir, report func(news)) error {
	info, err := sub.Lstat(file)
	before, had := d.files[file]
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.settled = false // it was deleted meanwhile, which the next look reports
		return nil
	case err != nil:
		return err
	case had && before.changed.Equal(info.ModTime()) && before.size == info.Size() && before.inode == inode(info):
		return nil
	}
	e, err := s.readEntry(sub, file)
	if errors.Is(err, fs.ErrNotExist) {
		d.settled = false
		return nil
	}
	if _, system := errors.AsType[*fs.PathError](err); !system {
		d.files[file] = known{changed: info.ModTime(), size: info.Size(), inode: inode(info), name: e.Name}
	}
	if err != nil {
		return err
	}
	report(news{entry: e})
	return nil
}

// readEntry returns the entry in the header of a record, which is not decrypted.
func (s *Shared) readEntry(sub *os.Root, file string) (secret.Entry, error) {
	text, err := s.text(sub, file, maxFile)
	if err != nil {
		return secret.Entry{}, err
	}
	h, _, err := parse(text)
	switch {
	case err != nil:
		return secret.Entry{}, err
	case fileName(h.Record) != file:
		return secret.Entry{}, fmt.Errorf("it is the record %.256q under the name of another", h.Record)
	case h.Log != sharedLog:
		return secret.Entry{}, errors.New("it is not a record of a shared folder")
	}
	return secret.Entry{Name: h.Record, Renew: timeOf(h.Renew), Ends: timeOf(h.Ends)}, nil
}
