// Package hub tells those who watch a key that something about it has changed: a burst
// of changes is told once, and what concerns everybody is told to one after the other
// over a while, so that not all look at once.
package hub

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Config says how long changes are gathered. The zero value is the defaults.
type Config struct {
	// Quiet is for how long nothing more must change before it is told. Default: 10 ms.
	Quiet time.Duration
	// Longest is how long a change waits at most while others keep coming. Default:
	// 100 ms.
	Longest time.Duration
	// Spread is how long it takes until all who watch were told by [Hub.All]. Default:
	// 1 s.
	Spread time.Duration
}

const batch = 32 // that are told at once by All

// Hub knows who watches which key. It is safe for concurrent use and has no goroutine
// but while it has something to tell.
type Hub[K comparable] struct {
	cfg Config

	mu      sync.Mutex
	watches map[K]map[*watch]struct{}
	changed map[K]struct{}
	first   time.Time // of what waits
	timer   *time.Timer
	late    []*watch // that All has yet to tell
	pace    *time.Timer
	closed  bool
}

// watch is one who is to be told.
type watch struct {
	notify func()
	gone   bool // guarded by the hub
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
	w := &watch{notify: notify}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches[key] == nil {
		h.watches[key] = map[*watch]struct{}{}
	}
	h.watches[key][w] = struct{}{}
	return func() { h.leave(key, w) }
}

func (h *Hub[K]) leave(key K, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.gone = true
	delete(h.watches[key], w)
	if len(h.watches[key]) == 0 {
		delete(h.watches, key)
	}
}

// Changed tells all who watch one of the keys, soon.
func (h *Hub[K]) Changed(keys ...K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		if _, watched := h.watches[key]; watched {
			h.changed[key] = struct{}{}
		}
	}
	if len(h.changed) > 0 {
		h.gather()
	}
}

// gather sets the moment at which what has changed is told.
func (h *Hub[K]) gather() {
	now := time.Now()
	if h.closed {
		return
	}
	if h.timer == nil {
		h.first, h.timer = now, time.AfterFunc(h.cfg.Quiet, h.tell)
		return
	}
	h.timer.Reset(max(0, min(h.cfg.Quiet, h.cfg.Longest-now.Sub(h.first))))
}

func (h *Hub[K]) tell() {
	h.mu.Lock()
	var concerned []*watch
	for key := range h.changed {
		concerned = slices.AppendSeq(concerned, maps.Keys(h.watches[key]))
	}
	clear(h.changed)
	h.timer = nil
	h.mu.Unlock()
	for _, w := range concerned {
		w.notify()
	}
}

// All tells everybody, a few at a time. Called again meanwhile, it begins anew.
func (h *Hub[K]) All() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.late = h.late[:0]
	for _, watches := range h.watches {
		h.late = slices.AppendSeq(h.late, maps.Keys(watches))
	}
	if h.pace != nil {
		h.pace.Stop()
	}
	step := h.cfg.Spread / time.Duration(len(h.late)/batch+1)
	h.pace = time.AfterFunc(0, func() { h.tellSome(step) })
}

func (h *Hub[K]) tellSome(step time.Duration) {
	h.mu.Lock()
	n := min(batch, len(h.late))
	some := slices.DeleteFunc(slices.Clone(h.late[:n]), func(w *watch) bool { return w.gone })
	h.late = h.late[n:]
	if len(h.late) > 0 && !h.closed {
		h.pace = time.AfterFunc(step, func() { h.tellSome(step) })
	}
	h.mu.Unlock()
	for _, w := range some {
		w.notify()
	}
}

// Close ends the telling; what is called later does nothing.
func (h *Hub[K]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.late = true, nil
	for _, timer := range []*time.Timer{h.timer, h.pace} {
		if timer != nil {
			timer.Stop()
		}
	}
}
