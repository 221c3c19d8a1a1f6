package rootphase

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

const (
	// step is by how much the wall clock may get ahead of the monotonic one at once.
	step = time.Minute
	// believed is how long it has to stay ahead to be right: after a suspend, or once a clock that
	// was behind at the start was set.
	believed = time.Hour
)

// Clock is the wall clock without jumps ahead: a root is trusted, or forgotten, for good, and a clock
// that is a day ahead for a moment must not have that done. A jump back is followed at once, as it
// only prolongs waits. The zero Clock is ready.
type Clock struct {
	at, mono time.Time // of the last look
	ahead    time.Time // monotonic: since when the wall clock is ahead; zero if it is not
}

// At returns the time to go by at a moment.
func (c *Clock) At(now rotation.Time) time.Time {
	if c.at.IsZero() {
		c.at, c.mono = now.Wall, now.Mono
	}
	c.at = c.at.Add(now.Mono.Sub(c.mono))
	c.mono = now.Mono
	switch ahead := now.Wall.Sub(c.at) > step; {
	case !ahead, !c.ahead.IsZero() && now.Mono.Sub(c.ahead) >= believed:
		c.at, c.ahead = now.Wall, time.Time{}
	case c.ahead.IsZero():
		c.ahead = now.Mono
	}
	return c.at
}
