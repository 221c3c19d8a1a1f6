package names

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/host/filewatch"
	"github.com/countersign-dev/countersign/internal/host/safefile"
)

// maxFile is the most bytes of a file of patterns: some millions of names.
const maxFile = 64 << 20

// Config configures [Open].
type Config struct {
	// Patterns are matched beside those of the file. Default: none.
	Patterns []string
	// File is the path of a file with a pattern in each line. Empty lines, and lines that begin
	// with #, are skipped. It is read again when it changes, or a link on its path. While it
	// cannot be read or a line is invalid, its last good content stays. Replace it by renaming
	// another file: one that is written in place has fewer names for a moment. Required.
	File string
	// Poll is the interval at which the file is read without an event. Default: 10 s.
	Poll time.Duration
	// Changed is called after each change of the patterns, from one goroutine. Default: none.
	Changed func()
	// Log receives a line when the file changes or cannot be used. Default: [slog.Default].
	Log *slog.Logger
}

// Patterns is a set of patterns: "a.example.org" matches that name, "*.example.org" a name with one
// label before it, "**.example.org" one with one or more, "**" every name. It is safe for concurrent
// use.
type Patterns struct {
	fixed   table
	current atomic.Pointer[table] // the fixed ones, and those of the file

	config Config // without a File: fixed only
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	loaded bool              // the file was read once
	sum    [sha256.Size]byte // of its content
	err    error             // why it cannot be used
}

// New returns a fixed set of patterns.
func New(patterns ...string) (*Patterns, error) {
	fixed, err := newTable(patterns)
	if err != nil {
		return nil, err
	}
	p := &Patterns{fixed: fixed, cancel: func() {}}
	p.current.Store(&fixed)
	return p, nil
}

// Open returns a set of patterns of which some are in a file. It reads the file once, and watches it
// until [Patterns.Close]. Open succeeds without a usable file: see [Patterns.Err].
func Open(config Config) (*Patterns, error) {
	if config.File == "" {
		return nil, errors.New("the file of patterns has no name")
	}
	p, err := New(config.Patterns...)
	if err != nil {
		return nil, err
	}
	config.Log = cmp.Or(config.Log, slog.Default())
	p.config = config
	// Watch first, so that no change falls between the watch and the first read.
	watcher := filewatch.New(filewatch.Options{Poll: config.Poll, Log: config.Log}, config.File)
	p.read()
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.ended.Go(func() { p.follow(ctx, watcher) })
	return p, nil
}

// Close ends the watch of the file. It may be called twice.
func (p *Patterns) Close() {
	p.cancel()
	p.ended.Wait()
}

func (p *Patterns) follow(ctx context.Context, watcher *filewatch.Watcher) {
	defer watcher.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-watcher.C:
			if p.read() && p.config.Changed != nil {
				p.config.Changed()
			}
		}
	}
}

// read reads the file and reports whether the patterns have changed.
func (p *Patterns) read() (changed bool) {
	content, err := safefile.Read(p.config.File, maxFile)
	sum := sha256.Sum256(content)
	p.mu.Lock()
	same := err == nil && p.loaded && p.err == nil && sum == p.sum
	p.mu.Unlock()
	if same {
		return false
	}
	var t table
	if err == nil {
		t, err = readTable(string(content))
	}
	if err != nil {
		p.fail(fmt.Errorf("failed to read the names of %s: %w", p.config.File, err))
		return false
	}
	p.take(t, sum)
	return true
}

// fail notes why the file cannot be used, and logs it unless it is the error of the last time.
func (p *Patterns) fail(err error) {
	p.mu.Lock()
	known := p.err != nil && p.err.Error() == err.Error()
	p.err = err
	loaded := p.loaded
	p.mu.Unlock()
	if !known {
		p.config.Log.Error("file of names cannot be used", "error", err, "last_content_kept", loaded)
	}
}

func (p *Patterns) take(t table, sum [sha256.Size]byte) {
	lines := len(t)
	for suffix, kinds := range p.fixed {
		t[suffix] |= kinds
	}
	p.current.Store(&t)
	p.mu.Lock()
	p.loaded, p.sum, p.err = true, sum, nil
	p.mu.Unlock()
	p.config.Log.Info("file of names was read", "file", p.config.File, "names", lines)
}

// Match reports whether a name that [Fold] returned matches, and how specifically: of several sets,
// the one with the highest rank has the most specific pattern. It does not block.
func (p *Patterns) Match(name string) (rank int, ok bool) { return p.current.Load().match(name) }

// Err returns why the file cannot be used now, or nil. [Patterns.Match] then goes by its last good
// content, if there was any: that a name does not match is then uncertain.
func (p *Patterns) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Len returns the number of suffixes with a pattern, those of the file included.
func (p *Patterns) Len() int { return len(*p.current.Load()) }

// Strings returns all patterns, folded and sorted.
func (p *Patterns) Strings() []string { return p.current.Load().patterns() }

// Overlap returns a pattern that both sets have now, so that neither is more specific; ok is false
// if there is none.
func (p *Patterns) Overlap(other *Patterns) (pattern string, ok bool) {
	return p.current.Load().shared(*other.current.Load())
}
