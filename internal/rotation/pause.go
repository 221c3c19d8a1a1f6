package rotation

import (
	"context"
	"time"
)

const (
	// Never is the wait that only a change ends.
	Never = time.Duration(-1)
	// look is how often [Sleep] compares the clocks: a timer stands still while the machine
	// is suspended.
	look = 30 * time.Second
)

// Pause is a wait. It is over by the first of both clocks: the wall clock may be set, and the
// monotonic one stops while the machine is suspended. The zero Pause is over.
type Pause struct {
	until time.Time // by the wall clock
	after time.Time // by the monotonic one
	ever  bool      // until something changes
}

// NewPause returns the pause of that length, which may be [Never].
func NewPause(wait time.Duration, now Time) Pause {
	switch {
	case wait == Never:
		return Pause{ever: true}
	case wait <= 0:
		return Pause{}
	}
	return Pause{until: now.Wall.Add(wait), after: now.Mono.Add(wait)}
}

// Over reports whether the pause is over.
func (p Pause) Over(now Time) bool {
	return !p.ever && (!now.Wall.Before(p.until) || !now.Mono.Before(p.after))
}

// Left returns the rest of the pause; zero if it is over or has no end.
func (p Pause) Left(now Time) time.Duration {
	if p.ever || p.Over(now) {
		return 0
	}
	return min(p.after.Sub(now.Mono), p.until.Sub(now.Wall))
}

// Sleep waits for wait, which may be [Never], by the wall clock or the monotonic one. It
// returns early when ctx ends or changed is ready, and reports the latter; a nil changed
// never is.
func Sleep(ctx context.Context, wait time.Duration, wall func() time.Time, changed <-chan struct{}) bool {
	pause := NewPause(wait, Now(wall()))
	timer := time.NewTimer(look)
	defer timer.Stop()
	for now := Now(wall()); !pause.Over(now); now = Now(wall()) {
		if timer.Stop(); !pause.ever {
			timer.Reset(min(pause.Left(now), look))
		}
		select {
		case <-timer.C:
		case <-changed:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// After returns a channel that is closed when a [Sleep] of that length is over.
func After(ctx context.Context, wait time.Duration, wall func() time.Time) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		Sleep(ctx, wait, wall, nil)
	}()
	return over
}
