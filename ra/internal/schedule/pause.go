package schedule

import (
	"slices"
	"time"
)

const aDay = 24 * time.Hour // what is held, as far as waits go: there is no hurry

// fault slows the tenant down, or all if it is one of several in a row. A wait grows once for
// all calls that were in flight when it did: they failed by the same moment's trouble.
func (q *Queue) fault(i *Item, err error, now time.Time) {
	l := i.lane()
	if l.faults++; l.faults >= doubt && i.began.After(l.raised) {
		l.raised, l.until = now, now.Add(l.waits.After(err, now, aDay, 0))
	}
	if !i.began.After(q.raised) || slices.Contains(q.failing, i.Tenant) {
		return
	}
	if q.failing = append(q.failing, i.Tenant); len(q.failing) < doubt {
		return
	}
	q.failing, q.raised = q.failing[:0], now
	q.probing = true
	q.pause(now.Add(q.waits.After(err, now, aDay, 0)))
}

func (q *Queue) pause(until time.Time) {
	if until.After(q.until) {
		q.until = until
	}
}
