// Package filewatch signals when files may have changed: written in place, replaced,
// recreated, or reached through a changed link or folder. Call [New], and read the files
// whenever [Watcher.C] receives; compare their content to see what has changed.
//
// Everything that follows files calls it: secrets, roots, tokens, configurations, resources.
// One goroutine for each Watcher reads events and polls; a mutex guards the watched paths.
package filewatch

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

const (
	defaultDebounce = 100 * time.Millisecond
	defaultPoll     = 10 * time.Second
)

// Options of a Watcher. The zero value is ready to use.
type Options struct {
	// Debounce is how long to collect changes after the first one. Default: 100 ms.
	Debounce time.Duration
	// Poll is the interval of signals without an event: some file systems (NFS, FUSE) send
	// none. Default: 10 s.
	Poll time.Duration
	// NoEvents uses Poll only. Default: false.
	NoEvents bool
	// Log reports missing events. Default: [slog.Default].
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Debounce = cmp.Or(o.Debounce, defaultDebounce)
	o.Poll = cmp.Or(o.Poll, defaultPoll)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}

// Watcher watches a set of files. It is safe for concurrent use.
type Watcher struct {
	// C receives when files may have changed; several changes may be one signal.
	C <-chan struct{}

	opts   Options
	tell   chan struct{}
	events *fsnotify.Watcher // nil: polling only
	done   chan struct{}
	wg     sync.WaitGroup
	close  sync.Once

	mu    sync.Mutex
	paths []string
	names map[string]map[string]bool // names that matter, by their real folder
}

// New returns a Watcher of these files, which need not exist. A path that ends in a
// separator is a folder, of which all files are watched, future ones too. Reading the files
// after New misses no change: later ones are signalled.
func New(opts Options, paths ...string) *Watcher {
	tell := make(chan struct{}, 1)
	w := &Watcher{C: tell, tell: tell, opts: opts.withDefaults(), done: make(chan struct{})}
	if !opts.NoEvents {
		events, err := fsnotify.NewWatcher()
		if err == nil {
			w.events = events
		} else {
			w.opts.Log.Warn("file events unavailable, polling instead", "interval", w.opts.Poll, "error", unavailable(err))
		}
	}
	w.Set(paths...)
	w.wg.Go(w.run)
	return w
}

// unavailable names the limit that is reached: not the one for files, which has the same number.
func unavailable(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return errno.Advise(err, "raise fs.inotify.max_user_instances, or the limit for open files")
	}
	return errno.Explain(err)
}

// Set watches these files instead. Reading them after Set misses no change.
func (w *Watcher) Set(paths ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnOfMounts(paths)
	w.paths = slices.Clone(paths)
	w.follow()
}

// warnOfMounts names new files whose replacement cannot be seen.
func (w *Watcher) warnOfMounts(paths []string) {
	for _, path := range paths {
		if !slices.Contains(w.paths, path) && isMount(path) {
			w.opts.Log.Warn("the file is a mount point of its own: it stays as it is when the file outside is replaced; mount the folder that has it, without subPath", "file", path)
		}
	}
}

// Close ends the watch and returns when it has ended. It may be called twice.
func (w *Watcher) Close() {
	w.close.Do(func() {
		close(w.done)
		if w.events != nil {
			_ = w.events.Close() // nothing to lose
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

// look updates the watches, then signals the owner.
func (w *Watcher) look() {
	w.mu.Lock()
	w.follow()
	w.mu.Unlock()
	select {
	case w.tell <- struct{}{}:
	default: // already signalled
	}
}
