package rotation

import "time"

// Never is the wait that only a change ends.
const Never = time.Duration(-1)

// pause is a wait. It is over when either clock says so.
type pause struct {
	until time.Time // by the wall clock
	after time.Time // by the monotonic one
	ever  bool      // until something changes
}

func newPause(wait time.Duration, now Time) pause {
	switch wait {
	case 0:
		return pause{}
	case Never:
		return pause{ever: true}
	}
	return pause{until: now.Wall.Add(wait), after: now.Mono.Add(wait)}
}

func (p pause) over(now Time) bool {
	return !p.ever && (!now.Wall.Before(p.until) || !now.Mono.Before(p.after))
}

// left returns the rest of the pause; zero if it is over or has no end.
func (p pause) left(now Time) time.Duration {
	if p.ever || p.over(now) {
		return 0
	}
	return min(p.after.Sub(now.Mono), p.until.Sub(now.Wall))
}
