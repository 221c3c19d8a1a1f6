package identities

import (
	"container/heap"
	"time"
)

// queue is a heap of entries ordered by a time. Each entry records its place, so it can be
// moved or removed.
type queue struct {
	list []*entry
	by   field
}

// field returns one of an entry's times and its place in the queue ordered by it.
type field func(*entry) (at *time.Time, place *int)

func byDue(e *entry) (at *time.Time, place *int)  { return &e.due, &e.dueAt }
func byRank(e *entry) (at *time.Time, place *int) { return &e.rank, &e.rankAt }

// put adds e at the given time, or moves it there.
func (q *queue) put(e *entry, at time.Time) {
	when, place := q.by(e)
	*when = at
	if *place == 0 {
		heap.Push(q, e)
	} else {
		heap.Fix(q, *place-1)
	}
}

// remove removes e if it is queued.
func (q *queue) remove(e *entry) {
	if _, place := q.by(e); *place != 0 {
		heap.Remove(q, *place-1)
	}
}

// first returns the first entry, or nil.
func (q *queue) first() *entry {
	if len(q.list) == 0 {
		return nil
	}
	return q.list[0]
}

// all returns a copy of the entries in no order, safe while the queue changes.
func (q *queue) all() []*entry { return append([]*entry(nil), q.list...) }

// Len, Less, Swap, Push and Pop implement heap.Interface. Places count from 1; 0 means not
// queued.
func (q *queue) Len() int { return len(q.list) }

// Less orders by time.
func (q *queue) Less(i, j int) bool {
	a, _ := q.by(q.list[i])
	b, _ := q.by(q.list[j])
	return a.Before(*b)
}

// Swap exchanges two entries.
func (q *queue) Swap(i, j int) {
	q.list[i], q.list[j] = q.list[j], q.list[i]
	_, a := q.by(q.list[i])
	_, b := q.by(q.list[j])
	*a, *b = i+1, j+1
}

// Push appends an entry.
func (q *queue) Push(x any) {
	e := x.(*entry)
	q.list = append(q.list, e)
	_, place := q.by(e)
	*place = len(q.list)
}

// Pop removes and returns the last entry.
func (q *queue) Pop() any {
	e := q.list[len(q.list)-1]
	q.list[len(q.list)-1] = nil
	q.list = q.list[:len(q.list)-1]
	_, place := q.by(e)
	*place = 0
	return e
}
