package loglimit

import (
	"sync"
	"time"
)

const (
	repeatAfter = time.Minute
	// maxRepeated bounds the kinds of lines that are distinguished.
	maxRepeated = 1000
)

// Repeats has a line about the same client logged once a minute. The zero value is ready, and safe
// for concurrent use.
type Repeats struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	logged  time.Time
	dropped int // since then
}

// Allow reports whether a line of this kind may be logged at now, and how many of them were dropped
// since the last one.
func (r *Repeats) Allow(kind string, now time.Time) (dropped int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen[kind]
	if seen == nil {
		seen = r.add(kind, now)
	}
	if !seen.logged.IsZero() && now.Sub(seen.logged) < repeatAfter {
		seen.dropped++
		return 0, false
	}
	dropped, seen.logged, seen.dropped = seen.dropped, now, 0
	return dropped, true
}

// add makes an entry for the kind; those of too many kinds share one.
func (r *Repeats) add(kind string, now time.Time) *repeat {
	if r.seen == nil {
		r.seen = map[string]*repeat{}
	}
	if len(r.seen) >= maxRepeated {
		for other, seen := range r.seen {
			if now.Sub(seen.logged) >= repeatAfter {
				delete(r.seen, other)
			}
		}
	}
	if len(r.seen) >= maxRepeated {
		kind = ""
	}
	if r.seen[kind] == nil {
		r.seen[kind] = &repeat{}
	}
	return r.seen[kind]
}
