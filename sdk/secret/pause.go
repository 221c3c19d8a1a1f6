package secret

import "time"

// pause is a wait between attempts. It is over when either clock says so: the monotonic
// clock stops while the machine is suspended, and the wall clock may be set back.
type pause struct {
	until time.Time // by the wall clock
	after time.Time // by the monotonic one
	ever  bool      // until something changes
}

func newPause(wait time.Duration, now time.Time) pause {
	if wait == never {
		return pause{ever: true}
	}
	return pause{until: now.Add(wait), after: time.Now().Add(wait)}
}

func (p pause) over(now time.Time) bool {
	return !p.ever && (!now.Before(p.until) || !time.Now().Before(p.after))
}

// left returns the remaining wait by the monotonic clock; zero or less if the pause is
// over or has no end.
func (p pause) left() time.Duration {
	if p.ever || p.after.IsZero() {
		return 0
	}
	return time.Until(p.after)
}
