package schedule

import "time"

const (
	// Look is the longest interval between looks at the clock: a suspend or a clock jump
	// fires no timer.
	Look = 30 * time.Second
	// drift is the difference between wall clock and monotonic clock, from one look to the
	// next, above which the wall clock has jumped or the machine has slept.
	drift = time.Second
)

// jumpWatch detects that the wall clock was set or the machine suspended.
type jumpWatch struct {
	now   func() time.Time
	began time.Time // with its monotonic reading
	apart time.Duration
}

func newJumpWatch(now func() time.Time) jumpWatch {
	c := jumpWatch{now: now, began: time.Now()}
	c.apart = c.lead()
	return c
}

// lead returns how far the wall clock is ahead of the monotonic clock.
func (c *jumpWatch) lead() time.Duration {
	return c.now().Round(0).Sub(c.began.Round(0)) - time.Since(c.began)
}

// jumped reports whether the clocks have drifted apart since the last call.
func (c *jumpWatch) jumped() bool {
	lead := c.lead()
	moved := (lead - c.apart).Abs() > drift
	c.apart = lead
	return moved
}
