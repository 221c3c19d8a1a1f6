package schedule

import (
	"slices"
	"time"
)

// ring is an order of turns.
type ring int

const (
	everything ring = iota
	renewals
	rings
)

// classes are those that a ring's turns are for.
func (r ring) classes() []class {
	if r == renewals {
		return []class{renewal}
	}
	return []class{renewal, fresh}
}

// turn returns whose turn it is; its tenant leaves that ring until again is called.
// Without one it returns when a wait ends, zero if only a landing helps.
func (q *Queue) turn(now time.Time) (l *lane, of ring, wait time.Duration) {
	if len(q.failing) >= doubt {
		if l, wait = q.trial(now); l != nil {
			return l, everything, 0
		}
		if left := q.doubted.Sub(now); left > 0 {
			return nil, everything, shorter(left, wait)
		}
	}
	if q.probing {
		if q.probes > 0 {
			return nil, everything, wait
		}
		if !q.anew {
			if l = q.newcomer(now); l != nil {
				q.anew = true
				return l, everything, 0
			}
		}
	}
	q.anew = false
	q.turns++
	if q.turns%q.limits.Reserve == 0 {
		if l, _ = q.next(renewals, now); l != nil {
			return l, renewals, 0
		}
	}
	if l, wait = q.next(everything, now); l == nil {
		q.turns-- // nobody had it
	}
	return l, everything, wait
}

// trial returns a lane of the first tenant in the round whose last call was answered, or else of one that has
// not failed, or else of one with few faults and none since the last answer. Whether one without faults
// fails decides whether all wait. Without one it returns when the wait of such a tenant ends.
func (q *Queue) trial(now time.Time) (found *lane, wait time.Duration) {
	for _, most := range []int{wasAnswered, noFault, noFault + doubt - 1} {
		found = q.first(func(t *tenant) *lane {
			if q.doubts(t) > most {
				return nil
			}
			l, left := t.ready(everything, q.mostOfTenant(), now)
			wait = shorter(wait, left)
			return l
		})
		if found != nil {
			return found, wait
		}
	}
	return nil, wait
}

// newcomer returns the lane of the first tenant in the round that has something that was never
// tried. While the authority may be down, each second probe is one: it may be down for
// those alone that have failed.
func (q *Queue) newcomer(now time.Time) *lane {
	return q.first(func(t *tenant) *lane {
		if l := &t.lanes[untried]; l.has(everything) && l.room(now) {
			return l
		}
		return nil
	})
}

// first returns the first lane in the round that is chosen. Its tenant leaves the round until again is
// called.
func (q *Queue) first(choose func(*tenant) *lane) *lane {
	for place, t := range q.rings[everything] {
		if l := choose(t); l != nil {
			q.rings[everything] = slices.Delete(q.rings[everything], place, place+1)
			t.inRing[everything] = false
			return l
		}
	}
	return nil
}

// next goes round a ring once. A tenant that must wait keeps its place in the round.
func (q *Queue) next(r ring, now time.Time) (found *lane, wait time.Duration) {
	most := q.mostOfTenant()
	for range len(q.rings[r]) {
		t := q.rings[r][0]
		q.rings[r] = q.rings[r][1:]
		t.inRing[r] = false
		if !t.has(r) {
			q.prune(t, now)
			continue
		}
		found, left := t.ready(r, most, now)
		if found != nil {
			return found, 0
		}
		q.again(r, t)
		wait = shorter(wait, left)
	}
	return nil, wait
}

// mostOfTenant is how many calls a tenant has in flight at most.
func (q *Queue) mostOfTenant() int { return max(1, q.limits.InFlight/2) }

func (t *tenant) has(r ring) bool { return t.lanes[untried].has(r) || t.lanes[tried].has(r) }

func (l *lane) has(r ring) bool {
	return !l.waiting[renewal].empty() || r == everything && !l.waiting[fresh].empty()
}

// again gives a tenant its next turn, the last, if it has anything for it.
func (q *Queue) again(r ring, t *tenant) {
	if t.has(r) && !t.inRing[r] {
		t.inRing[r] = true
		q.rings[r] = append(q.rings[r], t)
	}
}

// Status is what a Queue shows.
type Status struct {
	Waiting, InFlight int
	Tenants           int     // that have something waiting
	Rate              float64 // calls a second, at present
	Share             float64 // of what is configured, that is this queue's
	Until             time.Time
}

// Status returns what waits and how fast it goes.
func (q *Queue) Status() Status {
	s := Status{Waiting: q.length, InFlight: q.inFlight, Rate: q.rate.allowed(), Share: q.rate.share, Until: q.until}
	if q.probing && q.doubted.After(s.Until) && !q.untroubled() {
		s.Until = q.doubted
	}
	for _, t := range q.tenants {
		if t.count() > 0 {
			s.Tenants++
		}
	}
	return s
}

// untroubled reports whether something waits of a tenant that is tried at once.
func (q *Queue) untroubled() bool {
	for _, t := range q.tenants {
		if t.count() > 0 && q.doubts(t) < noFault+doubt {
			return true
		}
	}
	return false
}

// Delay returns how long the last in line waits at least.
func (q *Queue) Delay(now time.Time) time.Duration {
	seconds := min(float64(q.length)/q.rate.allowed(), aDay.Seconds()) // it may be no number
	if q.rate.allowed() <= 0 {
		seconds = longest.Seconds()
	}
	return max(q.until.Sub(now), 0) + time.Duration(seconds*float64(time.Second))
}

// Throttled reports whether an item that waits could go out now if the rate had room: not where a
// fault, a pause or a slot is waited for as well.
func (q *Queue) Throttled(i *Item, now time.Time) bool {
	t := i.tenant
	free := q.inFlight < q.limits.InFlight && t.inFlight()+t.hanging < q.mostOfTenant() && i.lane().room(now)
	return free && !q.probing && !q.until.After(now) && q.rate.allowed() > 0 && q.rate.wait(now) > 0
}
