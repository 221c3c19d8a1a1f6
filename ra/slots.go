package ra

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/call"
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
	turn call.Turn
	hung *schedule.Item // whose call is settled, while its client has not returned
}

func newSlots(n int) slots {
	s := slots{all: make([]slotState, n)}
	for i := range s.all {
		s.all[i].turn = call.NewTurn()
	}
	return s
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

// vacate frees the slot of a call that is settled, once its client has returned. The lock is
// held.
func (a *authority) vacate(s slot, i *schedule.Item) {
	place := &a.slots.all[s]
	if place.busy = false; len(place.turn) > 0 {
		place.hung = i
		a.queue.Hang(i)
	}
}

// returned takes the slot back from a client that had kept it.
func (a *authority) returned(s slot) {
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	place := &a.slots.all[s]
	if hung := place.hung; hung != nil && len(place.turn) == 0 {
		place.hung = nil
		a.queue.Returned(hung, time.Now())
		a.poke()
	}
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
