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

// compact writes the records of the index to another file, while others are appended to the log. Then
// finish has its turn.
func (l *Log) compact() {
	defer l.work.Done()
	places, end := l.places()
	fresh, err := l.rewrite(places, end)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.compacted(err)
		return
	}
	l.fresh = fresh
	if !l.busy {
		l.busy = true
		l.work.Add(1)
		go l.finish()
	}
}

// finish adds what has changed meanwhile, and replaces the log. It is busy, so nothing is appended.
func (l *Log) finish() {
	defer l.work.Done()
	err := l.replace(l.fresh)
	if err == nil {
		l.files.Lock()
		old := l.file
		l.mu.Lock()
		l.adopt(l.fresh)
		l.mu.Unlock()
		l.files.Unlock()
		_ = old.Close() // it was replaced
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = nil
	l.compacted(err)
	l.goOn()
}

// compacted ends an attempt. The next one after a failure is not before the log has grown.
func (l *Log) compacted(err error) {
	l.compacting, l.compactAt = false, 0
	if err != nil {
		l.compactAt = l.end + l.end/4
		l.log.Warn("failed to compact the log of names: it grows until it succeeds", "folder", l.path, "bytes", l.end, "error", errno.Explain(err))
	}
}

// named is the place of a record.
type named struct {
	name string
	at   int64
}

// places returns where the records are, in the order of the file, and where they end.
func (l *Log) places() (places []named, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index.since(0), l.end
}

// since returns the records from an offset on, in order.
func (x *index) since(from int64) []named {
	places := make([]named, 0, len(x.places))
	for name, p := range x.places {
		if p.at >= from {
			places = append(places, named{name, p.at})
		}
	}
	slices.SortFunc(places, func(a, b named) int { return cmp.Compare(a.at, b.at) })
	return places
}

// rewritten is a log that is to replace the file of the name.
type rewritten struct {
	file  diskFile
	id    string
	index index
	from  int64 // what the old log has from here on is missing
	end   int64
	text  []byte // that is to be written before end

	synced int64 // up to where it is durable
}

// rewrite writes records, of a log that ends at end, to a new file. The first frame is a record without
// a name, by which the key of an empty log is checked.
func (l *Log) rewrite(places []named, end int64) (*rewritten, error) {
	file, err := l.disk.create(freshLog)
	if err != nil {
		return nil, err
	}
	r := &rewritten{file: file, id: newLogID(), index: newIndex(len(places)), from: end}
	err = r.add(l.key, header{}, nil)
	if err == nil {
		err = l.copy(r, places, end)
	}
	if err == nil {
		err = r.sync() // most of it, so that finish is short
	}
	if err != nil {
		return nil, l.discard(r, err)
	}
	return r, nil
}

// replace adds what has changed since, and renames the file.
func (l *Log) replace(r *rewritten) error {
	l.mu.Lock()
	changed, end := l.index.since(r.from), l.end
	var gone []string
	for name := range r.index.places {
		if _, ok := l.index.places[name]; !ok {
			gone = append(gone, name)
		}
	}
	l.mu.Unlock()
	err := l.copy(r, changed, end)
	for _, name := range gone {
		if err == nil {
			err = r.add(l.key, header{Record: name, position: position{Deleted: true}}, nil)
		}
	}
	if err == nil {
		err = r.sync()
	}
	if err == nil {
		err = l.disk.rename(freshLog, logName)
	}
	if err != nil {
		return l.discard(r, err)
	}
	return nil
}

func (l *Log) discard(r *rewritten, err error) error {
	return errors.Join(err, r.file.Close(), l.disk.remove(freshLog))
}

// copy adds records to a new log. One that is damaged is left out; an error of the disk ends the
// attempt.
func (l *Log) copy(r *rewritten, places []named, end int64) error {
	for _, p := range places {
		f, content, err := l.read(p.at, end)
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
	return nil
}

func (l *Log) read(at, end int64) (frame, []byte, error) {
	f, err := readFrame(l.file, at, end)
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

// sync makes what was added durable.
func (r *rewritten) sync() error {
	if r.synced == r.end {
		return nil
	}
	if err := r.write(); err != nil {
		return err
	}
	r.synced = r.end
	return r.file.Sync()
}

// adopt uses another file.
func (l *Log) adopt(r *rewritten) {
	l.file, l.id, l.index, l.end, l.dirty, l.renamed = r.file, r.id, r.index, r.end, false, true
}
