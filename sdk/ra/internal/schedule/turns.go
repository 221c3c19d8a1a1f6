package schedule

import "time"

// ring is an order of turns.
type ring int

const (
	everything ring = iota
	renewals
	rings
)

// join gives a tenant a turn, the last.
func (q *Queue) join(r ring, t *tenant) {
	if !t.inRing[r] {
		t.inRing[r] = true
		q.rings[r] = append(q.rings[r], t)
	}
}

// turn returns the tenant whose turn it is, and for what; it leaves that ring until again is
// called.
// Without one it returns when a tenant's wait ends, zero if only a landing helps.
func (q *Queue) turn(now time.Time) (t *tenant, only ring, wait time.Duration) {
	q.turns++
	if q.turns%q.limits.Reserve == 0 {
		if t, _ = q.next(renewals, now); t != nil {
			return t, renewals, 0
		}
	}
	if t, wait = q.next(everything, now); t == nil {
		q.turns-- // nobody had it
	}
	return t, everything, wait
}

// next goes round a ring once. A tenant that must wait keeps its place in the round.
func (q *Queue) next(r ring, now time.Time) (found *tenant, wait time.Duration) {
	most := max(1, q.limits.InFlight/2)
	for range len(q.rings[r]) {
		t := q.rings[r][0]
		q.rings[r] = q.rings[r][1:]
		t.inRing[r] = false
		switch {
		case !t.has(r):
			q.prune(t, now)
		case t.room(most, now):
			return t, 0
		default:
			q.join(r, t)
			if left := t.until.Sub(now); left > 0 && (wait == 0 || left < wait) {
				wait = left
			}
		}
	}
	return nil, wait
}

func (t *tenant) has(r ring) bool {
	return !t.waiting[renewal].empty() || r == everything && !t.waiting[fresh].empty()
}

// again gives a tenant its next turn, if it has more.
func (q *Queue) again(r ring, t *tenant) {
	if t.has(r) {
		q.join(r, t)
	}
}

// Status is what a Queue shows.
type Status struct {
	Waiting, InFlight int
	Tenants           int     // that have something waiting
	Rate              float64 // calls a second, at present
	Until             time.Time
}

// Status returns what waits and how fast it goes.
func (q *Queue) Status() Status {
	s := Status{Waiting: q.length, InFlight: q.inFlight, Rate: q.rate.allowed, Until: q.until}
	for _, t := range q.tenants {
		if t.count() > 0 {
			s.Tenants++
		}
	}
	return s
}

// Delay returns how long the last in line waits at least.
func (q *Queue) Delay(now time.Time) time.Duration {
	return max(q.until.Sub(now), 0) + time.Duration(float64(q.length)/q.rate.allowed*float64(time.Second))
}
