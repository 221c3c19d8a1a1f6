package proxy

import (
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = time.Second
	maxBackoff   = 30 * time.Second
	healthyAfter = time.Minute // of running: earlier restarts are forgotten
)

// recovery decides how long a proxy that ended stays away.
type recovery struct {
	backoff time.Duration // the last one
	row     int           // restarts of which none ran for healthyAfter
}

// next returns how long to wait after a life of that length; false: the limit is
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
	// Between half of it and all: many agents do not come back at once.
	return r.backoff/2 + rand.N(r.backoff/2+1), true
}
