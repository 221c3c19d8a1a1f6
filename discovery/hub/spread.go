package hub

import "time"

const batch = 32 // watches notified at once

// Spread notifies all watchers of the keys, a few at a time. A watcher still pending
// from an earlier call keeps its place in the queue.
func (h *Hub[K]) Spread(keys ...K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.delay(h.watches[key])
	}
	h.keepPace()
}

// All notifies every watcher, as [Hub.Spread] does.
func (h *Hub[K]) All() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, watches := range h.watches {
		h.delay(watches)
	}
	h.keepPace()
}

func (h *Hub[K]) delay(watches map[*watch]struct{}) {
	if h.closed {
		return
	}
	for w := range watches {
		if !w.late {
			w.late = true
			h.late = append(h.late, w)
		}
	}
}

// keepPace schedules the late watches within Config.Spread from now.
func (h *Hub[K]) keepPace() {
	if len(h.late) == 0 {
		return
	}
	h.step = h.cfg.Spread / time.Duration((len(h.late)+batch-1)/batch)
	if h.pace == nil {
		h.pace = time.AfterFunc(0, h.tellSome)
	}
}

func (h *Hub[K]) tellSome() {
	for _, w := range h.next() {
		w.tell()
	}
}

// next removes and returns the next batch of late watches.
func (h *Hub[K]) next() []*watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(batch, len(h.late))
	some := h.late[:n:n]
	for _, w := range some {
		w.late = false
	}
	if h.late = h.late[n:]; len(h.late) > 0 {
		h.pace = time.AfterFunc(h.step, h.tellSome)
	} else {
		h.pace, h.late = nil, nil
	}
	return some
}
