package schedule

import (
	"container/heap"
	"time"
)

// Queue is a heap of entries ordered by a time. Each entry records its place, so it can be
// moved or removed.
type Queue[E Node] struct {
	list []E
	by   field
}

// field returns one of an entry's times and its place in the queue ordered by it.
type field func(*Entry) (at *time.Time, place *int)

func byDue(e *Entry) (at *time.Time, place *int)  { return &e.due, &e.dueAt }
func byRank(e *Entry) (at *time.Time, place *int) { return &e.rank, &e.rankAt }

// put adds e at the given time, or moves it there.
func (q *Queue[E]) put(e E, at time.Time) {
	when, place := q.by(e.Base())
	*when = at
	if *place == 0 {
		heap.Push(q, e)
	} else {
		heap.Fix(q, *place-1)
	}
}

// remove removes e if it is queued here.
func (q *Queue[E]) remove(e E) {
	_, place := q.by(e.Base())
	if at := *place - 1; at >= 0 && at < len(q.list) && q.list[at] == e {
		heap.Remove(q, at)
	}
}

// first returns the first entry; ok is false if there is none.
func (q *Queue[E]) first() (e E, ok bool) {
	if len(q.list) == 0 {
		return e, false
	}
	return q.list[0], true
}

// Len, Less, Swap, Push and Pop implement heap.Interface. Places count from 1; 0 means not
// queued.
func (q *Queue[E]) Len() int { return len(q.list) }

// Less orders by time.
func (q *Queue[E]) Less(i, j int) bool {
	a, _ := q.by(q.list[i].Base())
	b, _ := q.by(q.list[j].Base())
	return a.Before(*b)
}

// Swap exchanges two entries.
func (q *Queue[E]) Swap(i, j int) {
	q.list[i], q.list[j] = q.list[j], q.list[i]
	_, a := q.by(q.list[i].Base())
	_, b := q.by(q.list[j].Base())
	*a, *b = i+1, j+1
}

// Push appends an entry.
func (q *Queue[E]) Push(x any) {
	e := x.(E)
	q.list = append(q.list, e)
	_, place := q.by(e.Base())
	*place = len(q.list)
}

// Pop removes and returns the last entry.
func (q *Queue[E]) Pop() any {
	end := len(q.list) - 1
	e := q.list[end]
	var none E
	q.list[end] = none
	q.list = q.list[:end]
	_, place := q.by(e.Base())
	*place = 0
	return e
}
