// Package hub tells those who watch a key that something about it has changed: a burst
// of changes is told once, and what concerns many is told to one after the other over a
// while, so that not all look at once.
package hub

import (
	"sync"
	"sync/atomic"
	"time"
)

// Config says how long changes are gathered. The zero value is the defaults.
type Config struct {
	// Quiet is for how long nothing more must change before it is told. Default: 10 ms.
	Quiet time.Duration
	// Longest is how long a change waits at most while others keep coming. Default:
	// 100 ms.
	Longest time.Duration
	// Spread is how long it takes until all were told by [Hub.Spread] or [Hub.All].
	// Default: 1 s.
	Spread time.Duration
}

// Hub knows who watches which key. It is safe for concurrent use and has no goroutine
// but while it has something to tell.
type Hub[K comparable] struct {
	cfg Config

	mu      sync.Mutex
	watches map[K]map[*watch]struct{}
	closed  bool

	changed map[K]struct{} // watched keys that wait to be told
	first   time.Time      // since when
	due     time.Time      // until when
	timer   *time.Timer    // calls tell; nil while nothing waits

	late []*watch // whom Spread has yet to tell
	step time.Duration
	pace *time.Timer // calls tellSome; nil while nobody is late
}

// watch is one who is to be told.
type watch struct {
	notify func()
	gone   atomic.Bool
	late   bool // is in Hub.late; guarded by the hub
}

func (w *watch) tell() {
	if !w.gone.Load() {
		w.notify()
	}
}

// New returns a hub.
func New[K comparable](cfg Config) *Hub[K] {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&cfg.Quiet, 10 * time.Millisecond}, {&cfg.Longest, 100 * time.Millisecond}, {&cfg.Spread, time.Second}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return &Hub[K]{cfg: cfg, watches: map[K]map[*watch]struct{}{}, changed: map[K]struct{}{}}
}

// Watch has notify called after changes of key, until stop. notify must not block; a
// call that has begun may still run when stop returns.
func (h *Hub[K]) Watch(key K, notify func()) (stop func()) {
	return h.WatchAny([]K{key}, notify)
}

// WatchAny has notify called after changes of any of the keys, once for a burst that
// changes several of them, until stop; otherwise it is as [Hub.Watch].
func (h *Hub[K]) WatchAny(keys []K, notify func()) (stop func()) {
	w := &watch{notify: notify}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		if h.watches[key] == nil {
			h.watches[key] = map[*watch]struct{}{}
		}
		h.watches[key][w] = struct{}{}
	}
	return func() { h.leave(keys, w) }
}

func (h *Hub[K]) leave(keys []K, w *watch) {
	w.gone.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		delete(h.watches[key], w)
		if len(h.watches[key]) == 0 {
			delete(h.watches, key)
		}
	}
}

// Watched tells whether somebody watches key.
func (h *Hub[K]) Watched(key K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches[key]) > 0
}

// Close ends the telling; what is called later does nothing. A call of notify that has
// begun may still run when it returns.
func (h *Hub[K]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.late = true, nil
	clear(h.changed)
	for _, timer := range []*time.Timer{h.timer, h.pace} {
		if timer != nil {
			timer.Stop()
		}
	}
}
