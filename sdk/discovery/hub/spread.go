package hub

import "time"

const batch = 32 // who are told at once

// Spread tells all who watch one of the keys, a few at a time. Who still waits from a
// call before keeps the place in the queue.
func (h *Hub[K]) Spread(keys ...K) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		h.delay(h.watches[key])
	}
	h.keepPace()
}

// All tells everybody, as [Hub.Spread] does.
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

// keepPace has those who are late told within Config.Spread from now.
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

// next takes some off who are late.
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
