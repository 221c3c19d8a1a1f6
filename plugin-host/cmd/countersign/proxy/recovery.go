package proxy

import (
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second
	healthyAfter = time.Minute // after this time, earlier restarts no longer count
)

// recovery decides how long to wait before a restart.
type recovery struct {
	backoff time.Duration // the last one
	row     int           // consecutive restarts that ran for less than healthyAfter
}

// next returns how long to wait after a life of that length, or false if the limit is
// reached.
func (r *recovery) next(lived time.Duration, limit int) (time.Duration, bool) {
	if lived >= healthyAfter {
		*r = recovery{}
	}
	if r.row >= limit {
		return 0, false
	}
	r.row++
	r.backoff = min(max(firstBackoff, 2*r.backoff), maxBackoff)
	// Jitter: many agents must not restart at once.
	return r.backoff/2 + rand.N(r.backoff/2+1), true
}
