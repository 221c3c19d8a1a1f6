package schedule

import (
	"container/heap"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// tenant is one that shares in the turns, with its waiting requests.
type tenant struct {
	name    string
	lanes   [lanes]lane
	hanging int // clients that ignore the end of their call
	inRing  [rings]bool
	turns   [rings]int
	// answered is whether its last outcome was an answer.
	answered bool
}

// lane holds a tenant's requests that were tried before, or those that were not. Each lane
// slows down by its own faults: those who fail again say nothing about those who come anew.
type lane struct {
	waiting  [classes]items
	inFlight int
	faults   int // in a row
	until    time.Time
	raised   time.Time // when waits last grew
	waits    rotation.Waits
	turns    int
}

const (
	untried = iota
	tried
	lanes
)

func (t *tenant) count() int { return t.lanes[untried].count() + t.lanes[tried].count() }

func (l *lane) count() int { return len(l.waiting[fresh]) + len(l.waiting[renewal]) }

func (t *tenant) inFlight() int { return t.lanes[untried].inFlight + t.lanes[tried].inFlight }

// idle reports whether nothing of the tenant is worth remembering.
func (t *tenant) idle(now time.Time) bool {
	return t.count() == 0 && t.inFlight()+t.hanging == 0 && !t.lanes[untried].until.After(now) && !t.lanes[tried].until.After(now)
}

// longer returns the lane with more that wait.
func (t *tenant) longer() *lane {
	if t.lanes[tried].count() > t.lanes[untried].count() {
		return &t.lanes[tried]
	}
	return &t.lanes[untried]
}

// ready returns the lane of which one more call may go out, turn by turn the one and the
// other. Without one it returns when a lane's wait ends, zero if only a landing helps.
func (t *tenant) ready(r ring, most int, now time.Time) (found *lane, wait time.Duration) {
	if t.inFlight()+t.hanging >= most {
		return nil, 0
	}
	for n := range lanes {
		l := &t.lanes[(t.turns[r]+n)%lanes]
		switch {
		case !l.has(r):
		case l.room(now):
			t.turns[r]++
			return l, 0
		default:
			wait = shorter(wait, l.until.Sub(now))
		}
	}
	return nil, wait
}

// shorter returns the lesser of two waits, of which those below zero or zero are none.
func shorter(a, b time.Duration) time.Duration {
	if a <= 0 || 0 < b && b < a {
		return max(b, 0)
	}
	return a
}

// room reports whether a call may go out. A lane that had faults in a row tries one at a time.
func (l *lane) room(now time.Time) bool {
	return !l.until.After(now) && (l.faults < doubt || l.inFlight == 0)
}

// take removes and returns the item that goes first. Where faults in a row make one call at a
// time of it, each second one is the last of those that were never tried, so that whoever
// comes after many that fail does not wait until each of them has.
func (l *lane) take(r ring) *Item {
	l.turns++
	i := l.first(r)
	if l.faults >= doubt && l.turns%2 == 0 && i.Tried.IsZero() {
		i = l.last(r)
	}
	heap.Remove(i.line(), i.place-1)
	return i
}

func (l *lane) first(r ring) (first *Item) {
	for _, class := range r.classes() {
		if line := l.waiting[class]; !line.empty() && (first == nil || line[0].order().Before(first.order())) {
			first = line[0]
		}
	}
	return first
}

// last returns the item that would be taken last.
func (l *lane) last(r ring) (last *Item) {
	for _, class := range r.classes() {
		for _, i := range l.waiting[class] {
			if last == nil || i.order().After(last.order()) {
				last = i
			}
		}
	}
	return last
}

// items is a heap by order. Each item knows its place.
type items []*Item

func (q items) empty() bool { return len(q) == 0 }

// Len, Less, Swap, Push and Pop implement heap.Interface. Places count from 1.
func (q items) Len() int { return len(q) }

// Less is by who goes first.
func (q items) Less(i, j int) bool { return q[i].order().Before(q[j].order()) }

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
