package gateway

import (
	"context"
	"time"
)

// perSecond is how many names per second the service may change on average: each is
// checked, logged and sent to Envoys, which an endless sender would keep busy.
const perSecond = 100

// pacer lets a burst of names through, then limits the rate. While it waits, the
// service's answers stay unread, and gRPC flow control slows the service down.
type pacer struct {
	burst int
	due   time.Time // when everything so far would have arrived at that rate
}

// wait returns when an answer with that many names may be processed.
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
