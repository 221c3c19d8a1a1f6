package hub

import (
	"maps"
	"slices"
	"time"
)

// Changed notifies all watchers of the keys, soon.
func (h *Hub[K]) Changed(keys ...K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	watched := false
	for _, key := range keys {
		if len(h.watches[key]) > 0 {
			h.changed[key], watched = struct{}{}, true
		}
	}
	// Unwatched keys must not delay a pending notification.
	if watched {
		h.gather()
	}
}

// gather sets when to notify. A running timer finds a later moment when it fires: one
// that is reset might just have fired.
func (h *Hub[K]) gather() {
	now := time.Now()
	if h.timer == nil {
		h.first = now
		h.timer = time.AfterFunc(h.cfg.Quiet, h.tell)
	}
	h.due = now.Add(h.cfg.Quiet)
	if last := h.first.Add(h.cfg.Longest); last.Before(h.due) {
		h.due = last
	}
}

func (h *Hub[K]) tell() {
	for _, w := range h.concerned() {
		w.tell()
	}
}

// concerned removes and returns the watches to notify now, each once, in the order of their
// keys.
func (h *Hub[K]) concerned() (found []*watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if wait := time.Until(h.due); wait > 0 {
		h.timer = time.AfterFunc(wait, h.tell)
		return nil
	}
	keys := slices.Collect(maps.Keys(h.changed))
	if h.compare != nil {
		slices.SortFunc(keys, h.compare)
	}
	seen := map[*watch]struct{}{}
	for _, key := range keys {
		for w := range h.watches[key] {
			if _, again := seen[w]; !again {
				seen[w] = struct{}{}
				found = append(found, w)
			}
		}
	}
	clear(h.changed)
	h.timer = nil
	return found
}
