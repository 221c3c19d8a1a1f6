package ra

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/ra/internal/schedule"
)

// slot is the place of a call in flight. One whose client ignores its context keeps it, and
// one of its tenant's.
type slot int

// slots are the places of an authority's calls in flight.
type slots struct {
	all   []slotState
	began time.Time // when a call began with no other in flight
}

type slotState struct {
	busy bool
	hung *schedule.Item // whose call is settled, while its client has not returned
	next chan *flight   // for the worker; nil: there was no call yet
}

// free returns a place for a call.
func (s *slots) free() (slot, bool) {
	i := slices.IndexFunc(s.all, func(one slotState) bool { return !one.busy && one.hung == nil })
	return slot(i), i >= 0
}

// calling reports whether a call is in flight.
func (s *slots) calling() bool {
	return slices.ContainsFunc(s.all, func(one slotState) bool { return one.busy })
}

// take gives the place to a call that begins now.
func (s *slots) take(place slot, now time.Time) {
	if !s.calling() {
		s.began = now
	}
	s.all[place].busy = true
}

// fill has the slot's worker make the call of a flight. The first call starts the worker. The lock is
// held.
func (a *authority) fill(s slot, f *flight, now time.Time) {
	place := &a.slots.all[s]
	a.slots.take(s, now)
	if place.next == nil {
		place.next = make(chan *flight, 1) // the slot is free, so it is empty
		a.engine.tasks.Add(1)
		go a.work(s, place.next)
	}
	place.next <- f
}

// work makes the calls of a slot, one after the other, until the engine is closed. No goroutine is
// started for a call, and the stack stays as large as calls need it.
func (a *authority) work(s slot, next <-chan *flight) {
	for {
		select {
		case f := <-next:
			if !a.fly(f, s) {
				return
			}
			continue
		case <-a.engine.ctx.Done():
		}
		select {
		case f := <-next: // its callers wait
			if !a.fly(f, s) {
				return
			}
		default:
			a.engine.tasks.Done()
			return
		}
	}
}

// vacate frees the slot of a call that is settled, or has it wait for a client that hangs. The lock is
// held.
func (a *authority) vacate(s slot, i *schedule.Item, hangs bool) {
	place := &a.slots.all[s]
	if place.busy = false; hangs {
		place.hung = i
		a.queue.Hang(i)
	}
}

// returned takes the slot back from a client that hung. It reports whether its worker goes on, which
// is a task of the engine again then.
func (a *authority) returned(s slot) bool {
	e := a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	place := &a.slots.all[s]
	a.queue.Returned(place.hung, time.Now())
	place.hung = nil
	a.poke()
	if !e.closed {
		e.tasks.Add(1)
	}
	return !e.closed
}

// aloneFor is how long the first call goes alone. An answer takes no longer as a rule, and a call
// that hangs must not delay others for as long as it does.
const aloneFor = 3 * time.Second

// alone returns how long the call in flight still goes alone, if it does. Where a door counts the
// backdating as lifetime, the first call goes alone: all that were in flight before its answer would
// cost two certificates each.
func (a *authority) alone(now time.Time) time.Duration {
	if !a.engine.doors.Load().strict || a.back.known || !a.slots.calling() {
		return 0
	}
	return a.slots.began.Add(aloneFor).Sub(now)
}
