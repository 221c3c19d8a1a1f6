// Package hub (experimental) notifies watchers of changed keys for sources of xDS resources. It
// coalesces a burst of changes into one notification and spreads a change that concerns many
// watchers over time, so that they do not all look at once.
package hub

import (
	"sync"
	"sync/atomic"
	"time"
)

// Config sets the delays. The zero value uses the defaults.
type Config struct {
	// Quiet is how long changes must pause before watchers are notified. Default: 10 ms.
	Quiet time.Duration
	// Longest is how long a change waits at most while others keep coming. Default: 100
	// ms.
	Longest time.Duration
	// Spread is how long [Hub.Spread] and [Hub.All] take to notify everyone. Default: 1
	// s.
	Spread time.Duration
}

// Hub maps keys to watchers. It is safe for concurrent use and has a goroutine only
// while it notifies.
type Hub[K comparable] struct {
	cfg     Config
	compare func(a, b K) int // nil: no order

	mu      sync.Mutex
	watches map[K]map[*watch]struct{}
	closed  bool

	changed map[K]struct{} // watched keys with a pending notification
	first   time.Time      // time of the first
	due     time.Time      // time to notify
	timer   *time.Timer    // calls tell; nil if nothing is pending

	late []*watch // watches that Spread has yet to notify
	step time.Duration
	pace *time.Timer // calls tellSome; nil if late is empty
}

// watch is one registered watcher.
type watch struct {
	notify func()
	gone   atomic.Bool
	late   bool // in Hub.late; guarded by the hub
}

func (w *watch) tell() {
	if !w.gone.Load() {
		w.notify()
	}
}

// NewOrdered returns a hub that notifies the watchers of changed keys in the order of the keys,
// so that a stream that watches several never gets a later one first: an xDS source orders
// by type, as clusters come before the listeners that need them. [Hub.Spread] and [Hub.All] have
// no order.
func NewOrdered[K comparable](cfg Config, compare func(a, b K) int) *Hub[K] {
	h := New[K](cfg)
	h.compare = compare
	return h
}

// New returns a hub that notifies in no particular order. It starts no goroutine.
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

// Watch calls notify after changes of key until stop. notify must not block; a call
// already in progress may finish after stop returns.
func (h *Hub[K]) Watch(key K, notify func()) (stop func()) {
	return h.WatchAny([]K{key}, notify)
}

// WatchAny calls notify after changes of any of the keys, once for a burst that changes
// several, until stop; otherwise it is like [Hub.Watch].
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

// Watched reports whether key has a watcher.
func (h *Hub[K]) Watched(key K) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches[key]) > 0
}

// Close ends all notifications; later calls do nothing. A notify call already in
// progress may finish after it returns.
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
