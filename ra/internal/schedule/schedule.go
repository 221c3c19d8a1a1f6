// Package schedule decides which request goes to an authority next, and when: [Queue]. It
// has no clock, no goroutine and no lock, so a model can drive it through days in a moment.
//
// Turns go round the tenants that have something waiting, one request for each. Each
// [Limits.Reserve]th turn goes round those that renew, so that a flood of new requests leaves
// room for what must not expire. Within a tenant the lowest rank goes first, and turn by turn
// one that was tried before, the one whose last try is longest ago: what fails comes back and
// must not stand before those that nobody has looked at.
//
//	Add ──▶ waiting ── a turn, a slot and the rate's leave: Next ──▶ in flight ── Done
//	           └── Remove, or a full queue: Add returns it
//
// Faults slow down whom they concern. After three in a row a tenant waits and then tries
// one call at a time, and does both apart for those that were tried before and those that were
// not. After faults of three tenants in a row, with no answer between, the authority itself may be
// down: those that failed wait and try one call at a time, and the others are tried at once, three at a
// time: first those whose last call was answered. Only once one without faults fails do all wait. So
// requests that make a provider fail delay their own tenants alone, once each has failed, and there those
// that fail again delay themselves.
package schedule

import (
	"container/heap"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// doubt is the number of faults in a row after which a tenant, and of tenants in a row
// after which the authority, is waited for.
const doubt = 3

// Limits bound the calls of one authority. All are more than zero.
type Limits struct {
	Rate     float64 // calls a second
	Burst    float64 // calls at once, after a rest
	InFlight int     // calls at the same time; a tenant has half of them, those that hang too
	Length   int     // requests that wait
	Reserve  int     // every so many turns, one is for renewals
}

// Item is a request that waits. Its owner sets the exported fields before Add and leaves
// them alone until it is out of the queue.
type Item struct {
	Tenant  string
	Renewal bool      // something valid is held
	Rank    time.Time // the earliest goes first
	Tried   time.Time // when one like it was last tried in vain; zero: never
	Value   any

	tenant *tenant
	began  time.Time
	probe  int // the queue's answers, if it was probing; 0: it was not
	place  int // in its heap, from 1
}

// Began returns when its turn came; zero if it has not.
func (i *Item) Began() time.Time { return i.began }

type class int

const (
	fresh class = iota
	renewal
	classes
)

func (i *Item) class() class {
	if i.Renewal {
		return renewal
	}
	return fresh
}

// order is by when it goes within its lane: what keeps failing must not keep the rank that it
// once had.
func (i *Item) order() time.Time {
	if i.Tried.IsZero() {
		return i.Rank
	}
	return i.Tried
}

func (i *Item) lane() *lane {
	if i.Tried.IsZero() {
		return &i.tenant.lanes[untried]
	}
	return &i.tenant.lanes[tried]
}

func (i *Item) line() *items { return &i.lane().waiting[i.class()] }

// Queue is what waits for one authority, and what it has been told.
type Queue struct {
	limits   Limits
	rate     rate
	tenants  map[string]*tenant
	rings    [rings][]*tenant
	length   int
	inFlight int
	turns    int

	until   time.Time       // nothing goes out before
	probing bool            // few calls at a time, until one is answered
	answers int             // counts them, from 1
	probes  int             // calls in flight that began while it was probing, since the last answer
	doubted time.Time       // no tenant that failed is tried before
	anew    bool            // the last probe was for one that was never tried
	failing map[string]bool // tenants with faults since the last answer
	raised  time.Time       // when waits last grew
	waits   rotation.Waits

	recent recent
}

// New returns an empty Queue.
func New(l Limits) *Queue {
	return &Queue{limits: l, rate: newRate(l), tenants: map[string]*tenant{}, failing: map[string]bool{}, answers: 1}
}

// Divide gives the queue a share of the rate and of the burst, from 0 to 1, where other queues
// have the rest. It begins with all of it.
func (q *Queue) Divide(share float64, now time.Time) { q.rate.divide(share, now) }

// Add puts an item in line. If the queue is full, the tenant with the most waiting loses its
// last item, of those that were tried or of the others, whichever are more: Add returns that
// one, which may be i itself.
func (q *Queue) Add(i *Item, now time.Time) (dropped *Item) {
	t := q.tenant(i.Tenant, now)
	i.tenant = t
	if q.length >= q.limits.Length {
		if dropped = q.crowdedOut(i); dropped == nil {
			q.prune(t, now)
			return i
		}
		q.Remove(dropped)
	}
	heap.Push(i.line(), i)
	q.length++
	for r := range rings {
		q.again(r, t)
	}
	return dropped
}

// tenant returns the tenant of that name. It forgets others that have nothing before there
// are too many.
func (q *Queue) tenant(name string, now time.Time) *tenant {
	t := q.tenants[name]
	if t != nil {
		return t
	}
	if len(q.tenants) >= 2*q.limits.Length {
		for _, other := range q.tenants {
			q.prune(other, now)
		}
	}
	t = &tenant{name: name}
	q.tenants[name] = t
	return t
}

// crowdedOut returns what makes room for i, or nil if nobody has more of its kind.
func (q *Queue) crowdedOut(i *Item) *Item {
	most := i.tenant
	for _, other := range q.tenants {
		if other.count() > most.count() {
			most = other
		}
	}
	longer := most.longer()
	if longer == i.lane() {
		return nil
	}
	return longer.last(everything)
}

// Remove takes an item out of line; it does nothing if the item does not wait.
func (q *Queue) Remove(i *Item) {
	if i.place > 0 {
		heap.Remove(i.line(), i.place-1)
		q.length--
	}
}

// Next returns the item whose turn has come; its owner makes the call and then calls Done
// or Return. Without one it returns how long nothing will change by itself; zero means
// until Add, Done or Return.
func (q *Queue) Next(now time.Time) (i *Item, wait time.Duration) {
	if q.length == 0 || q.inFlight >= q.limits.InFlight || q.probing && q.probes >= doubt {
		return nil, 0
	}
	if wait = max(q.until.Sub(now), q.rate.wait(now)); wait > 0 {
		return nil, wait
	}
	l, of, wait := q.turn(now)
	if l == nil {
		return nil, wait
	}
	i = l.take(of)
	q.length--
	q.again(of, i.tenant)
	q.rate.bucket.Spend()
	q.recent.add(1, now)
	q.inFlight++
	l.inFlight++
	if i.probe = 0; q.probing {
		i.probe = q.answers
		q.probes++
	}
	i.began = now
	return i, 0
}

// Done settles an item's call. The error is the authority's own, or nil if it answered with
// a certificate, good or not.
func (q *Queue) Done(i *Item, err error, now time.Time) {
	q.land(i)
	if err == nil || !waits(err) {
		q.answered(i.tenant) // a refusal is an answer, too
		q.prune(i.tenant, now)
		return
	}
	after := told(ca.RetryAfter(err))
	if after > 0 {
		q.pause(now.Add(after))
	}
	if ca.ReasonFor(err) == ca.RateLimited {
		q.rate.limited(i.began, now, after)
		q.probing = q.probing || q.until.After(now)
		return
	}
	q.fault(i, err, now)
}

// Return settles an item for which no call was made.
func (q *Queue) Return(i *Item, now time.Time) {
	q.land(i)
	q.rate.bucket.Refund()
	q.recent.add(-1, now)
	q.prune(i.tenant, now)
}

// Hang tells that an item's client has not returned although its call is settled. It counts
// toward its tenant's half of the calls until Returned.
func (q *Queue) Hang(i *Item) { i.tenant.hanging++ }

// Returned tells that a hanging client has returned after all.
func (q *Queue) Returned(i *Item, now time.Time) {
	i.tenant.hanging--
	q.prune(i.tenant, now)
}

func (q *Queue) land(i *Item) {
	q.inFlight--
	if i.probe == q.answers {
		q.probes--
	}
	i.lane().inFlight--
}

// waits reports whether the error is about the authority rather than the request. A request that
// the authority has not decided yet does not slow down others.
func waits(err error) bool {
	return ca.ActionFor(err) != ca.EndAttempt && ca.ReasonFor(err) != ca.Pending
}

func (q *Queue) answered(t *tenant) {
	for l := range t.lanes {
		t.lanes[l].faults = 0
		t.lanes[l].waits.Reset()
	}
	t.answered = true
	clear(q.failing)
	q.answers++
	q.probing, q.probes, q.doubted = false, 0, time.Time{}
	q.waits.Reset()
}

// prune forgets a tenant that has nothing.
func (q *Queue) prune(t *tenant, now time.Time) {
	if t.idle(now) && t.inRing == [rings]bool{} {
		delete(q.tenants, t.name)
	}
}
