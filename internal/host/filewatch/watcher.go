// Package filewatch tells when files may have changed, however that was done:
// written in place, replaced, removed and made again, or reached through a link, a
// chain of links or a folder that was exchanged. Call [New], and read the files
// whenever [Watcher.C] says so: what has really changed, only their content tells.
package filewatch

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	defaultDebounce = 100 * time.Millisecond
	defaultPoll     = 10 * time.Second
)

// Options say how closely files are watched. The zero value is useful.
type Options struct {
	// Debounce is how long more changes are awaited after the first. Default: 100 ms.
	Debounce time.Duration
	// Poll is the time between two looks without any event: some file systems (NFS,
	// FUSE) tell none. Default: 10 s.
	Poll time.Duration
	// NoEvents leaves it to Poll alone. Default: false.
	NoEvents bool
	// Log is told where events cannot be had. Default: silent.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Debounce == 0 {
		o.Debounce = defaultDebounce
	}
	if o.Poll == 0 {
		o.Poll = defaultPoll
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Watcher watches a set of files. Its methods may be called by any goroutine.
type Watcher struct {
	// C receives when it is time to look; several changes may be told as one.
	C <-chan struct{}

	opts   Options
	tell   chan struct{}
	events *fsnotify.Watcher // nil: there are none, the poll must do
	done   chan struct{}
	wg     sync.WaitGroup
	close  sync.Once

	mu    sync.Mutex
	paths []string
	names map[string]map[string]bool // what matters, by the real folder that it is in
}

// New returns a Watcher of these files; they need not exist. A path that ends in a
// separator is a folder, of which any file is watched that is or comes to be directly
// in it. A look after New misses nothing: whatever changes later is told.
func New(opts Options, paths ...string) *Watcher {
	tell := make(chan struct{}, 1)
	w := &Watcher{C: tell, tell: tell, opts: opts.withDefaults(), done: make(chan struct{})}
	if !opts.NoEvents {
		events, err := fsnotify.NewWatcher()
		if err == nil {
			w.events = events
		} else {
			w.opts.Log.Warn("file events unavailable, polling instead", "interval", w.opts.Poll, "error", err)
		}
	}
	w.Set(paths...)
	w.wg.Go(w.run)
	return w
}

// Set watches these files instead. A look after Set misses nothing.
func (w *Watcher) Set(paths ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths = slices.Clone(paths)
	w.follow()
}

// Close ends the watch and returns when it has ended. It may be called again.
func (w *Watcher) Close() {
	w.close.Do(func() {
		close(w.done)
		if w.events != nil {
			_ = w.events.Close() // nothing is kept that could be lost
		}
	})
	w.wg.Wait()
}

func (w *Watcher) run() {
	poll := time.NewTicker(w.opts.Poll)
	defer poll.Stop()
	var events <-chan fsnotify.Event
	var lost <-chan error
	if w.events != nil {
		events, lost = w.events.Events, w.events.Errors
	}
	var settled <-chan time.Time
	for {
		select {
		case <-w.done:
			return
		case event := <-events:
			if settled == nil && w.concerns(event.Name) {
				settled = time.After(w.opts.Debounce)
			}
		case err, ok := <-lost:
			if !ok { // closed
				lost = nil
				continue
			}
			w.opts.Log.Warn("file events lost, rescanning", "error", err)
			settled = time.After(0)
		case <-settled:
			settled = nil
			w.look()
		case <-poll.C:
			w.look()
		}
	}
}

// look has the owner look, after the folders that matter now are watched.
func (w *Watcher) look() {
	w.mu.Lock()
	w.follow()
	w.mu.Unlock()
	select {
	case w.tell <- struct{}{}:
	default: // he will, already
	}
}
