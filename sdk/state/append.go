package state

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/internal/host/errno"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// write is a record that waits to be on disk.
type write struct {
	header  header
	content []byte
	done    chan struct{} // closed once it is, or err is set
	err     error
}

// bytes is at least the size of its frame; a byte of a name may take six in JSON.
func (w *write) bytes() int {
	h := w.header
	return len(w.content) + 6*(len(h.Record)+len(h.Identity)+len(h.Authority)) + 512
}

// Store replaces the record of e.Name. It is on disk when Store returns nil. After an error, of a
// canceled context too, either record may be there. A record without content means: keep nothing.
func (l *Log) Store(ctx context.Context, e secret.Entry, r secret.Record) error {
	if len(r.Content) == 0 {
		return l.Delete(ctx, e.Name)
	}
	h := header{Record: e.Name, Identity: r.Identity, Authority: r.Authority, position: position{Renew: secondsOf(e.Renew), Ends: secondsOf(e.Ends)}}
	if err := checkSize(h, r.Content); err != nil {
		return err
	}
	return l.add(ctx, &write{header: h, content: r.Content, done: make(chan struct{})})
}

// Delete removes the record of a name, if there is one. See [Log.Store].
func (l *Log) Delete(ctx context.Context, name string) error {
	return l.add(ctx, &write{header: header{Record: name, position: position{Deleted: true}}, done: make(chan struct{})})
}

// checkSize refuses what cannot be sealed, before it waits with others.
func checkSize(h header, content []byte) error {
	text, err := json.Marshal(h)
	switch {
	case err != nil:
		return err
	case h.Record == "" || !utf8.ValidString(h.Record+h.Identity+h.Authority):
		return errors.New("a record of the log needs a name, in UTF-8")
	case len(text) > maxHeader-256: // with room for its place
		return fmt.Errorf("its names have %d bytes, %d are allowed", len(text), maxHeader-256)
	case len(content) > maxFile-maxSealedHeader-64:
		return fmt.Errorf("its content has %d bytes, %d are allowed", len(content), maxFile-maxSealedHeader-64)
	}
	return nil
}

// add queues a record. The first caller writes for all that wait.
func (l *Log) add(ctx context.Context, w *write) error {
	l.mu.Lock()
	_, known := l.index.places[w.header.Record]
	switch {
	case l.closed:
		l.mu.Unlock()
		return errLogClosed
	case w.header.Deleted && !known && !l.busy && !l.dirty: // a failed write may have left one
		l.mu.Unlock()
		return nil
	case !w.header.Deleted && !known && len(l.index.places)+len(l.waiting) >= maxNames:
		l.mu.Unlock()
		return fmt.Errorf("the log of names has %d records, no more are allowed", maxNames)
	}
	l.waiting = append(l.waiting, w)
	lead := !l.busy
	l.busy = true
	if lead {
		l.work.Add(1)
	}
	l.mu.Unlock()
	if lead {
		l.flush()
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("failed to store a record: %w", ctx.Err())
	}
}

// flush writes what waits. If more waits then, a goroutine goes on, so that no caller works for the
// others for long. The caller has set busy and added to work.
func (l *Log) flush() {
	defer l.work.Done()
	l.mu.Lock()
	batch := l.batch()
	l.mu.Unlock()
	frames, err := l.append(batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(batch, frames, err)
	if l.outdated() && !l.compacting && !l.closed {
		l.compacting = true
		l.work.Add(1)
		go l.compact()
	}
	l.goOn()
}

// goOn begins what comes next of the one who is busy. The caller holds the lock.
func (l *Log) goOn() {
	next := l.flush
	switch {
	case l.fresh != nil:
		next = l.finish
	case len(l.waiting) == 0:
		l.busy = false
		return
	}
	l.work.Add(1)
	go next()
}

// batch takes what one fsync may have.
func (l *Log) batch() []*write {
	size, n := 0, 0
	for n < len(l.waiting) && size < maxBatch {
		size += l.waiting[n].bytes()
		n++
	}
	batch := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return batch
}

// append seals and writes a batch at the end of the log. What it uses of l is changed by the one who
// is busy only.
func (l *Log) append(batch []*write) (frames []frame, err error) {
	var text []byte
	for _, w := range batch {
		h := w.header
		h.Log, h.At = l.id, l.end+int64(len(text))
		encoded, err := sealFrame(l.key, h, w.content)
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame{header: h, at: h.At, size: int64(len(encoded))})
		text = append(text, encoded...)
	}
	if err := l.clean(); err != nil {
		return nil, err
	}
	l.dirty = true
	if _, err := l.file.WriteAt(text, l.end); err != nil {
		return nil, err
	}
	if err := l.file.Sync(); err != nil {
		return nil, err
	}
	l.dirty = false
	return frames, nil
}

// clean removes what a failed write has left: a whole record among it would come back.
func (l *Log) clean() error {
	if l.dirty {
		if err := l.file.Truncate(l.end); err != nil {
			return err
		}
		l.dirty = false
	}
	return l.syncName()
}

// syncName makes the name of the file durable, without which no record in it is.
func (l *Log) syncName() error {
	if l.renamed {
		if err := l.disk.sync(); err != nil {
			return err
		}
		l.renamed = false
	}
	return nil
}

// settle puts a batch into the index and answers its callers.
func (l *Log) settle(batch []*write, frames []frame, err error) {
	if err != nil {
		err = fmt.Errorf("failed to write to %s in %s: %w", logName, l.path, errno.Explain(err))
	}
	for i, w := range batch {
		if err == nil {
			l.found(frames[i])
			l.end = frames[i].end()
		}
		w.err = err
		close(w.done)
	}
}

func sealFrame(key []byte, h header, content []byte) ([]byte, error) {
	sealed, err := sealAs(key, h, content, rand.Reader)
	if err != nil {
		return nil, err
	}
	return encodeFrame(h.At, sealed)
}
