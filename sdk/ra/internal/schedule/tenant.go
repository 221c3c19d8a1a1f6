package schedule

import (
	"container/heap"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// tenant is one that shares in the turns, with its waiting requests.
type tenant struct {
	name     string
	waiting  [classes]items
	inRing   [rings]bool
	inFlight int
	faults   int // in a row
	until    time.Time
	waits    rotation.Waits
}

func (t *tenant) count() int { return len(t.waiting[fresh]) + len(t.waiting[renewal]) }

// idle reports whether nothing of the tenant is worth remembering.
func (t *tenant) idle(now time.Time) bool {
	return t.count() == 0 && t.inFlight == 0 && !t.until.After(now)
}

// room reports whether one more of the tenant's calls may go out. One that had faults in a
// row tries one at a time.
func (t *tenant) room(most int, now time.Time) bool {
	if t.faults >= doubt {
		most = 1
	}
	return t.inFlight < most && !t.until.After(now)
}

// take removes and returns the first item: of the renewals alone, or of all.
func (t *tenant) take(only ring) *Item {
	from := renewal
	if only == everything && !t.waiting[fresh].empty() &&
		(t.waiting[renewal].empty() || t.waiting[fresh][0].Rank.Before(t.waiting[renewal][0].Rank)) {
		from = fresh
	}
	return heap.Pop(&t.waiting[from]).(*Item)
}

// last returns the item that would be taken last.
func (t *tenant) last() (last *Item) {
	for _, list := range t.waiting {
		for _, i := range list {
			if last == nil || i.Rank.After(last.Rank) {
				last = i
			}
		}
	}
	return last
}

// items is a heap by rank. Each item knows its place.
type items []*Item

func (q items) empty() bool { return len(q) == 0 }

// Len, Less, Swap, Push and Pop implement heap.Interface. Places count from 1.
func (q items) Len() int { return len(q) }

// Less orders by rank.
func (q items) Less(i, j int) bool { return q[i].Rank.Before(q[j].Rank) }

// Swap exchanges two items.
func (q items) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

// Push appends an item.
func (q *items) Push(x any) {
	i := x.(*Item)
	*q = append(*q, i)
	i.place = len(*q)
}

// Pop removes and returns the last item.
func (q *items) Pop() any {
	last := len(*q) - 1
	i := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	i.place = 0
	return i
}
