package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/discovery/hub"
	"github.com/countersign-dev/countersign/internal/host/filewatch"
)

// Config configures a folder. Path is required.
type Config struct {
	// Path of the folder. Required.
	Path string
	// Settle is how long a file must be stable before a change takes effect: a
	// partially written file may be valid YAML at every step. Default: 200 ms.
	Settle time.Duration
	// Poll is the interval between checks without file events, which some file systems
	// do not deliver. Default: 10 s.
	Poll time.Duration
	// Log receives accepted and rejected files. Default: [slog.Default].
	Log *slog.Logger
}

// Folder serves the content of a folder. Its methods are safe for concurrent use.
// Create one with [New].
type Folder struct {
	cfg Config
	hub *hub.Hub[key]
	now atomic.Pointer[generation]

	mu      sync.Mutex
	entries map[string]*entry // by file name
	fault   error             // of the folder as a whole
}

// New reads the folder once and returns a Folder that serves it. [Folder.Status]
// reports bad files; an unreadable folder is an error.
func New(cfg Config) (*Folder, error) {
	if cfg.Path == "" {
		return nil, errors.New("folder: Config.Path is required")
	}
	cfg.Settle = cmp.Or(cfg.Settle, 200*time.Millisecond)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	f := &Folder{cfg: cfg, hub: hub.NewOrdered(hub.Config{}, byType), entries: map[string]*entry{}}
	f.now.Store(newGeneration())
	f.look(time.Time{})
	if f.fault != nil {
		return nil, fmt.Errorf("folder %s: %w", cfg.Path, f.fault)
	}
	return f, nil
}

// Run follows the folder until ctx ends. It may be called once.
func (f *Folder) Run(ctx context.Context) error {
	defer f.hub.Close()
	watcher := filewatch.New(filewatch.Options{Poll: f.cfg.Poll, Log: f.cfg.Log}, f.watched()...)
	defer watcher.Close()
	settle := time.NewTimer(0) // for changes since New
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.C:
		case <-settle.C:
		}
		if f.look(time.Now()) {
			settle.Reset(f.cfg.Settle)
		}
		watcher.Set(f.watched()...)
	}
}

// watched returns the paths to watch: the folder's content and the targets of its
// symlinks.
func (f *Folder) watched() []string {
	paths := []string{f.cfg.Path + string(filepath.Separator)}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.entries {
		paths = append(paths, filepath.Join(f.cfg.Path, name))
	}
	return paths
}

// look reads the folder and serves changes. It reports whether a change has yet to
// settle; a zero time accepts everything at once.
func (f *Folder) look(now time.Time) (unsettled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.fault
	files, err := names(f.cfg.Path)
	if f.fault = err; err != nil {
		if before == nil {
			f.cfg.Log.Error("cannot read the resource folder, keeping its last known resources", "folder", f.cfg.Path, "error", err)
		}
		return false
	}
	for _, name := range files {
		if f.entries[name] == nil {
			f.entries[name] = &entry{name: name}
		}
	}
	total, changed := 0, false
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		e := f.entries[name]
		seen := e.see(f.cfg.Path, slices.Contains(files, name), &total)
		taken := e.take(seen, now, f.cfg.Settle)
		changed, unsettled = changed || taken, unsettled || seen.sum != e.taken.sum
	}
	if changed {
		f.serve()
	}
	return unsettled
}

// serve builds a generation from the current files and notifies the watchers affected.
func (f *Folder) serve() {
	next := newGeneration()
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		e := f.entries[name]
		if e.gone {
			delete(f.entries, name)
			f.cfg.Log.Info("resource file removed", "folder", f.cfg.Path, "file", name)
			continue
		}
		e.join(next, f.cfg.Log)
	}
	for _, e := range f.entries {
		e.warn(next)
	}
	before := f.now.Swap(next)
	keys, lists := next.changed(before)
	f.hub.Changed(concerned(keys, lists)...)
}

// concerned returns the watch keys affected by changes: resources, lists of types (a
// key without a name), and the one name table for all hosts.
func concerned(keys []key, lists []string) []key {
	var all []key
	for _, k := range keys {
		if k.url == NameTableURL {
			k.name = tableName
		}
		all = append(all, k)
	}
	for _, url := range lists {
		all = append(all, key{url: url})
	}
	return all
}
