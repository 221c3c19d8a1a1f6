package schedule

import (
	"math"
	"time"
)

// demandOver is the time that demand is averaged over, and in which what waits should go out.
const demandOver = 10 * time.Second

// Demand returns how many calls a second there is use for: as many as went out of late, and
// those that wait.
func (q *Queue) Demand(now time.Time) float64 {
	q.recent.add(0, now)
	return (q.recent.calls + float64(q.length)) / demandOver.Seconds()
}

// recent counts calls, and forgets them.
type recent struct {
	calls float64
	until time.Time
}

func (r *recent) add(calls float64, now time.Time) {
	if passed := now.Sub(r.until); passed > 0 {
		r.calls *= math.Exp(-passed.Seconds() / demandOver.Seconds())
		r.until = now
	}
	r.calls = max(0, r.calls+calls)
}
