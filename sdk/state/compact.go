package state

import (
	"cmp"
	"errors"
	"slices"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// minCompact is the size below which a log is left alone.
const minCompact = 1 << 20

// compactFrom is minCompact, but in tests.
var compactFrom int64 = minCompact

// writeSize is how much is written at once.
const writeSize = 256 << 10

// outdated reports whether most of the log is out of date.
func (l *Log) outdated() bool {
	return l.end > max(compactFrom, 2*l.index.live, l.compactAt)
}

// compact writes the records of the index to another file, which replaces the log. It is busy
// meanwhile, so nothing is appended.
func (l *Log) compact() {
	defer l.work.Done()
	fresh, err := l.rewrite(l.places())
	if err == nil {
		l.files.Lock()
		old := l.file
		l.mu.Lock()
		l.adopt(fresh)
		l.mu.Unlock()
		l.files.Unlock()
		_ = old.Close() // it was replaced
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compactAt = 0; err != nil {
		l.compactAt = l.end + l.end/4
		l.log.Warn("failed to compact the log of names: it grows until it succeeds", "folder", l.path, "bytes", l.end, "error", errno.Explain(err))
	}
	if len(l.waiting) == 0 {
		l.busy = false
		return
	}
	l.work.Add(1)
	go l.flush()
}

// named is the place of a record.
type named struct {
	name string
	at   int64
}

// places returns where the records are, in the order of the file.
func (l *Log) places() []named {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := make([]named, 0, len(l.index.places))
	for name, p := range l.index.places {
		places = append(places, named{name, p.at})
	}
	slices.SortFunc(places, func(a, b named) int { return cmp.Compare(a.at, b.at) })
	return places
}

// rewritten is a log that has replaced the file of the name.
type rewritten struct {
	file  diskFile
	id    string
	index index
	end   int64
	text  []byte // that is to be written before end
}

// rewrite writes records to a new file and renames it. The first frame is a record without a name, by
// which the key of an empty log is checked. A record that is damaged is left out; an error of the disk
// ends the attempt.
func (l *Log) rewrite(places []named) (*rewritten, error) {
	file, err := l.disk.create(freshLog)
	if err != nil {
		return nil, err
	}
	r := &rewritten{file: file, id: newLogID(), index: newIndex(len(places))}
	err = l.fill(r, places)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = l.disk.rename(freshLog, logName)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), l.disk.remove(freshLog))
	}
	return r, nil
}

func (l *Log) fill(r *rewritten, places []named) error {
	if err := r.add(l.key, header{}, nil); err != nil {
		return err
	}
	for _, p := range places {
		f, content, err := l.read(p.at)
		if errors.Is(err, errRead) {
			return err
		}
		if err != nil {
			l.reportDamage(damage{p.at, f.end(), p.name, err})
			continue
		}
		f.Record = p.name // the same text, which the index has already
		if err := r.add(l.key, f.header, content); err != nil {
			return err
		}
	}
	return r.write()
}

func (l *Log) read(at int64) (frame, []byte, error) {
	f, err := readFrame(l.file, at, l.end)
	if err != nil {
		return frame{at: at}, nil, err
	}
	content, err := openFrame(l.file, f, l.key, l.id)
	return f, content, err
}

// add seals a record for its place in this log.
func (r *rewritten) add(key []byte, h header, content []byte) error {
	h.Log, h.At = r.id, r.end
	encoded, err := sealFrame(key, h, content)
	if err != nil {
		return err
	}
	f := frame{header: h, at: h.At, size: int64(len(encoded))}
	r.index.add(f)
	r.end = f.end()
	if r.text = append(r.text, encoded...); len(r.text) < writeSize {
		return nil
	}
	return r.write()
}

func (r *rewritten) write() error {
	_, err := r.file.WriteAt(r.text, r.end-int64(len(r.text)))
	r.text = r.text[:0]
	return err
}

// adopt uses another file.
func (l *Log) adopt(r *rewritten) {
	l.file, l.id, l.index, l.end, l.dirty, l.renamed = r.file, r.id, r.index, r.end, false, true
}
