package identities

import "time"

const (
	// look is how long the clock goes unwatched at most: a suspend or a jump of the
	// clock moves no timer.
	look = 30 * time.Second
	// drift is how far the wall clock and the monotonic one may come apart between two
	// looks before the wall clock has jumped, or the machine has slept.
	drift = time.Second
)

// jumpWatch notices that the wall clock was set, or the machine suspended.
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

// lead is how far the wall clock is ahead of the monotonic one.
func (c *jumpWatch) lead() time.Duration {
	return c.now().Round(0).Sub(c.began.Round(0)) - time.Since(c.began)
}

// jumped tells whether the two have come apart since it was asked last.
func (c *jumpWatch) jumped() bool {
	lead := c.lead()
	moved := (lead - c.apart).Abs() > drift
	c.apart = lead
	return moved
}
