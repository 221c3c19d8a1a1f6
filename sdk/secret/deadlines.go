package secret

import (
	"container/heap"
	"time"
)

// deadlines holds a time for each of many leaves and knows the first of them, so that
// neither a change nor a look visits all leaves. The zero value is empty.
type deadlines struct {
	list   []deadline
	places map[*leaf]int // in list
	// latest puts the last time first.
	latest bool
}

type deadline struct {
	leaf *leaf
	at   time.Time
}

// set sets the time of a leaf.
func (d *deadlines) set(l *leaf, at time.Time) {
	i, has := d.places[l]
	switch {
	case !has:
		heap.Push(d, deadline{l, at})
	case !d.list[i].at.Equal(at):
		d.list[i].at = at
		heap.Fix(d, i)
	}
}

// drop removes a leaf if it is there.
func (d *deadlines) drop(l *leaf) {
	if i, has := d.places[l]; has {
		heap.Remove(d, i)
	}
}

// first returns the first leaf and its time; ok is false if there is none.
func (d *deadlines) first() (l *leaf, at time.Time, ok bool) {
	if len(d.list) == 0 {
		return nil, at, false
	}
	return d.list[0].leaf, d.list[0].at, true
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d *deadlines) Len() int { return len(d.list) }

// Less orders by time.
func (d *deadlines) Less(i, j int) bool {
	if d.latest {
		i, j = j, i
	}
	return d.list[i].at.Before(d.list[j].at)
}

// Swap exchanges two leaves.
func (d *deadlines) Swap(i, j int) {
	d.list[i], d.list[j] = d.list[j], d.list[i]
	d.places[d.list[i].leaf], d.places[d.list[j].leaf] = i, j
}

// Push appends a leaf.
func (d *deadlines) Push(x any) {
	if d.places == nil {
		d.places = make(map[*leaf]int)
	}
	d.list = append(d.list, x.(deadline))
	d.places[x.(deadline).leaf] = len(d.list) - 1
}

// Pop removes the last of the list.
func (d *deadlines) Pop() any {
	end := len(d.list) - 1
	last := d.list[end]
	d.list[end] = deadline{}
	d.list = d.list[:end]
	delete(d.places, last.leaf)
	return last
}
