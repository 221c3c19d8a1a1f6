package gateway

import (
	"context"
	"time"
)

// perSecond is how many names the service may change in the long run: each is checked,
// logged and told to Envoys, which one that sends without end would keep busy.
const perSecond = 100

// pacer lets a burst of names through, and then so many in a second. Who waits here
// leaves the service's answers unread, and gRPC has it wait in turn.
type pacer struct {
	burst int
	due   time.Time // when all that came so far would have come at that pace
}

// wait returns when an answer with so many names may be taken.
func (p *pacer) wait(ctx context.Context, names int) error {
	const each = time.Second / perSecond
	now := time.Now()
	if rested := now.Add(-time.Duration(p.burst) * each); p.due.Before(rested) {
		p.due = rested
	}
	p.due = p.due.Add(time.Duration(min(max(names, 1), p.burst)) * each)
	select {
	case <-time.After(p.due.Sub(now)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
