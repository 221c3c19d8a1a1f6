package schedule

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

const aDay = 24 * time.Hour // what is held, as far as waits go: there is no hurry

// fault slows the tenant down, or all if it is one of several in a row. A wait grows once for
// all calls that were in flight when it did: they failed by the same moment's trouble.
func (q *Queue) fault(i *Item, err error, now time.Time) {
	l := i.lane()
	if l.faults++; l.faults >= doubt && i.began.After(l.raised) {
		l.raised, l.until = now, now.Add(pauseAfter(&l.waits, err, now))
	}
	if !i.began.After(q.raised) || slices.Contains(q.failing, i.Tenant) {
		return
	}
	if q.failing = append(q.failing, i.Tenant); len(q.failing) < doubt {
		return
	}
	q.failing, q.raised = q.failing[:0], now
	q.probing = true
	q.pause(now.Add(pauseAfter(&q.waits, err, now)))
}

// pauseAfter returns the next wait; what only a change can help is tried now and then, as
// nobody tells the queue of changes.
func pauseAfter(w *rotation.Waits, err error, now time.Time) time.Duration {
	if wait := w.After(err, now, aDay, 0); wait != rotation.Never {
		return wait
	}
	return time.Minute
}

func (q *Queue) pause(until time.Time) {
	if until.After(q.until) {
		q.until = until
	}
}
