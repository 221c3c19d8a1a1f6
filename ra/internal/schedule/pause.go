package schedule

import "time"

const aDay = 24 * time.Hour // what is held, as far as waits go: there is no hurry

// fault slows the tenant down. Faults of several tenants in a row also slow down all that failed, and those
// of a trial everyone. A wait grows once for all calls that were in flight when it did: they failed by
// the same moment's trouble.
func (q *Queue) fault(i *Item, err error, now time.Time) {
	l := i.lane()
	trial := len(q.failing) >= doubt && q.doubts(i.tenant) <= noFault
	i.tenant.answered = false
	if l.faults++; l.faults >= doubt && i.began.After(l.raised) {
		l.raised, l.until = now, now.Add(l.waits.After(err, now, aDay, 0))
	}
	q.failing[i.Tenant] = true
	if len(q.failing) < doubt || !i.began.After(q.raised) {
		return
	}
	until := now.Add(q.waits.After(err, now, aDay, 0))
	q.probing, q.raised, q.doubted = true, now, until
	if trial {
		q.pause(until)
	}
}

// What [Queue.doubts] returns of a tenant without faults.
const (
	wasAnswered = iota
	noFault
)

// doubts returns how little is to be expected of a tenant's next call: nothing bad after an answer, and less
// with each fault in a row. One that has failed since the last answer counts as having had many.
func (q *Queue) doubts(t *tenant) int {
	switch {
	case q.failing[t.name]:
		return noFault + doubt
	case t.answered:
		return wasAnswered
	}
	return noFault + max(t.lanes[untried].faults, t.lanes[tried].faults)
}

func (q *Queue) pause(until time.Time) {
	if until.After(q.until) {
		q.until = until
	}
}
