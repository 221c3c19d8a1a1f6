// Package audit keeps the file of the audit log: [Open] it, give each engine a [Sink] of its own, and
// [Log.Reopen] it when the file has been moved away.
package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Stdout is the path that stands for standard output.
const Stdout = "-"

// Log is the file with the audit log, or standard output. It is safe for concurrent use.
type Log struct {
	path string // empty: standard output

	mu      sync.Mutex // a write is one step of a rotation
	file    file
	torn    bool   // the last line may be there in part
	written uint64 // lines, by their writes
	lost    uint64 // a sync failed, and none of the lines up to this one is certain
}

// file is what an [os.File] has.
type file interface {
	io.WriteCloser
	Sync() error
}

// standardOutput is a file that is synced if it can be.
type standardOutput struct{ io.Writer }

func (o standardOutput) Sync() error {
	if f, ok := o.Writer.(file); ok {
		return f.Sync()
	}
	return nil
}

func (standardOutput) Close() error { return nil }

// Sink writes the lines of one engine. Each engine has its own: the kernel reports a failed sync once,
// which may be another engine's, and a line that another could not end must not run into the next.
type Sink struct {
	log  *Log
	last uint64 // its last line
}

// Sink returns a sink for an engine.
func (a *Log) Sink() *Sink { return &Sink{log: a} }

// Write implements [ra.Sink].
func (p *Sink) Write(text []byte) (int, error) {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	n, err := p.log.write(text)
	p.last = p.log.written
	return n, err
}

// Sync implements [ra.Sink].
func (p *Sink) Sync() error {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	if p.last <= p.log.lost && p.last > 0 {
		return errors.New("audit log: an earlier sync failed, and the line may be lost with it")
	}
	return p.log.sync()
}

// Open opens the log for appending. A new file is for this user alone.
func Open(path string, stdout io.Writer) (*Log, error) {
	if path == Stdout {
		return &Log{file: standardOutput{stdout}}, nil
	}
	file, err := openToAppend(path)
	if err != nil {
		return nil, err
	}
	return &Log{path: path, file: file}, nil
}

// Check returns an error if the log cannot be there.
func Check(path string) error {
	if path == Stdout {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("audit.file is %q: that is a folder", path)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("audit.file is %q: %w; create the folder", path, err)
	}
	return nil
}

// openToAppend opens or makes a file. A pipe without a reader is an error; it is not waited
// for one.
func openToAppend(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit.file is %q: %w", path, err)
	}
	return file, nil
}

// write keeps a line apart from one that is there in part.
func (a *Log) write(text []byte) (int, error) {
	a.written++
	if a.torn && len(text) > 0 && text[0] != '\n' {
		if _, err := a.file.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	n, err := a.file.Write(text)
	a.torn = err != nil && (a.torn || n > 0)
	return n, err
}

// sync syncs all lines. If it fails, no line since the last sync is certain, of any engine.
func (a *Log) sync() error {
	err := synced(a.file)
	if err != nil {
		a.lost = a.written
	}
	return err
}

// synced syncs a file. A pipe or a terminal takes no sync and needs none.
func synced(file file) error {
	if err := file.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// Reopen opens the path anew, so that the old file can be moved away and kept. If that fails,
// the old one stays in use. Standard output is left alone.
func (a *Log) Reopen() error {
	if a.path == "" {
		return nil
	}
	next, err := openToAppend(a.path)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Between a line and its sync, the sync of the line is this one.
	_ = a.sync() // the owner of the line gets the error
	old := a.file
	a.file, a.torn = next, false
	return old.Close()
}

// Close closes the file. It waits for no write that hangs.
func (a *Log) Close() error {
	if a.path == "" {
		return nil
	}
	if !a.mu.TryLock() {
		return errors.New("audit log: the last write has not ended")
	}
	defer a.mu.Unlock()
	return a.file.Close()
}
