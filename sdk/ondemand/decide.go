package ondemand

import (
	"context"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// maxDeciding bounds the calls of Rule.Ask that wait. An ask.Memory lets fewer wait, and chooses which.
const maxDeciding = 4096

// What the rules may have together, in multiples of what one may have, and what each may have
// whatever the others have: of orders in flight, and of names that wait. A hundred rules must not cost
// a hundred times as much as one.
const (
	together    = 4
	ownInFlight = 2
	ownWaiting  = 16
)

// reaskAfter is the pause before Rule.Ask is called again for a client that waits.
const reaskAfter = time.Second

// victims is how many unused names are found at once, as each search visits all names.
const victims = 64

// searchAgain is the pause after a search that found fewer: a flood of names must not make each of
// them a search.
const searchAgain = time.Second

// admit decides about a new name as far as that costs nothing. It returns why the name is
// refused.
func (s *Set) admit(e *entry) Refusal {
	r := e.rule
	allowed, known := r.conf.Ask == nil, r.conf.Ask == nil
	if memory, ok := r.conf.Ask.(recaller); ok {
		allowed, known = memory.Recall(e.name)
	}
	switch {
	case known && !allowed:
		return Denied
	case known && !s.makeRoom(r):
		return Full
	case !s.fits(r, maxDeciding, func(r *rule) int { return r.deciding }),
		!s.fits(r, r.conf.Queue, func(r *rule) int { return r.pool.Queued(schedule.First) }):
		return Full
	}
	e.decided = known
	return ""
}

// fits reports whether a rule may have one more of what count counts, of which it may have most. It may
// have a few whatever the others have, and no more than are left of what all rules may have.
func (s *Set) fits(r *rule, most int, count func(*rule) int) bool {
	has := count(r)
	switch {
	case has >= most:
		return false
	case has < ownWaiting:
		return true
	}
	left := together * most
	for _, other := range *s.rules.Load() {
		left -= count(other)
	}
	return has < left
}

// makeRoom reports whether the rule may hold one more name. It may drop an unused one for that.
func (s *Set) makeRoom(r *rule) bool {
	if r.held < r.conf.Names {
		return true
	}
	if !r.conf.Evict {
		return false
	}
	for now := rotation.Now(s.sched.Now()); ; {
		for len(r.victims) > 0 {
			e := r.victims[0]
			r.victims = r.victims[1:]
			if e.rule == r && e.evictable() {
				r.counts.dropped++
				s.sched.Remove(e)
				return true
			}
		}
		if !r.search.Over(now) {
			return false
		}
		if r.victims = s.unused(r); len(r.victims) < victims { // these are all
			r.search = rotation.NewPause(searchAgain, now)
		}
	}
}

func (e *entry) evictable() bool {
	return !e.Gone() && e.decided && e.watchers.Len() == 0 && !e.asking() && !e.waiting
}

// unused returns the names of a rule that have been unused for longest.
func (s *Set) unused(r *rule) []*entry {
	var all []*entry
	s.sched.Each(func(e *entry) {
		if e.rule == r && e.evictable() {
			all = append(all, e)
		}
	})
	slices.SortFunc(all, func(a, b *entry) int { return a.used.Compare(b.used) })
	return slices.Clone(all[:min(victims, len(all))])
}

// decide asks about a new name in a goroutine of its own: Ask bounds its calls and puts names in
// order. Close does not wait for it.
func (s *Set) decide(e *entry) {
	conf := e.rule.conf
	if conf.Ask == nil {
		s.settle(e, true, nil)
		return
	}
	e.deciding = true
	e.rule.counts.asked++
	ctx, cancel := context.WithCancel(s.sched.Context)
	e.giveUp = cancel
	go func() {
		defer cancel()
		allowed, err := conf.Ask.Allowed(ctx, e.name)
		s.sched.Lock()
		defer s.sched.Unlock()
		e.deciding = false
		switch {
		case s.closed || e.Gone():
		case err != nil && e.waiting && (ctx.Err() != nil || e.rule.conf != conf && !e.rule.removed):
			s.decide(e) // it was given up before a client came, or by a reload
		default:
			s.settle(e, allowed, err)
		}
	}()
}

// settle takes the decision about a new name.
func (s *Set) settle(e *entry, allowed bool, err error) {
	switch {
	case e.rule.removed:
		s.refuse(e, NoRule)
	case err != nil && !e.waiting: // no client waits
		s.refuse(e, Undecided)
	case err != nil:
		s.sched.Complain("cannot decide whether a name may have a certificate", err, "rule", e.rule.conf.Name)
		s.undecided(e, err)
	case !allowed:
		s.refuse(e, Denied)
	case !s.makeRoom(e.rule):
		s.refuse(e, Full)
	default:
		e.decided = true
		e.recount()
		s.sched.Schedule(e)
	}
}

// undecided asks again while a client waits, but not when too many names are asked about.
func (s *Set) undecided(e *entry, err error) {
	now := rotation.Now(s.sched.Now())
	if !later(err) || e.wait.Left(now) <= reaskAfter {
		s.refuse(e, Undecided)
		return
	}
	e.again = rotation.NewPause(reaskAfter, now)
	s.sched.Schedule(e)
}

// refuse answers the subscribers that wait, and drops the entry unless it has something. The next
// subscription decides anew.
func (s *Set) refuse(e *entry, why Refusal) {
	if e.waiting {
		e.waiting = false
		e.rule.refuse(why)
		s.notify(e) // not those that hold an expired certificate: nothing changes for them
	}
	if !e.held() && e.order == nil && !e.asking() && e.Rotation.Pausing(rotation.Now(s.sched.Now())) == 0 {
		s.sched.Remove(e)
		return
	}
	s.sched.Schedule(e)
}

// refusal is an attempt that ended before the authority was asked.
type refusal struct {
	why Refusal
	err error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

var (
	errDenied    = ca.Errorf(ca.Denied, "the name may not have a certificate any more, by the rule's ask")
	errUnmatched = ca.Errorf(ca.Denied, "no pattern of a rule matches the name any more")
)

// failed takes an attempt that failed.
func (s *Set) failed(j *job) {
	e, now := j.entry, s.sched.Now()
	at := rotation.Now(now)
	wait := e.Rotation.Failed(at, j.err)
	if j.why == Denied {
		wait = max(wait, min(askAgain, e.Rotation.Left(now)))
		e.Rotation.RetryIn(at, wait)
	}
	e.denied = j.why == Denied
	if !j.early {
		e.order = nil
	}
	if j.sent {
		e.vain = nil
		if e.refused = !j.order.Again(j.err); !e.refused && e.rule.authority() == j.spec.Authorities[0] {
			e.order = j.order
		}
		if e.refused {
			e.vain = j.order
		}
		if e.refused && !j.held && e.stored && !j.foreign { // a restart would send it again
			e.stored = false
			if s.shared == nil { // the attempt has deleted it
				s.discard(e.name, term{})
			}
		}
	}
	e.failure = secret.NewFailure(j.err, now, wait)
	s.reportFailure(j)
	if !j.sent && !j.held && !((j.read || j.early) && later(j.err)) {
		e.Rotation.RetryIn(at, 0) // to look again costs nothing, and the entry would be kept
		s.refuse(e, j.why)
		return
	}
	if e.item(now) == nil && !e.unread(now) && (e.order == nil && ca.ActionFor(j.err) != ca.Wait || e.wait.Left(at) < wait) {
		s.refuse(e, j.why)
		return
	}
	s.sched.Schedule(e)
}

// reportFailure logs and counts an attempt that failed.
func (s *Set) reportFailure(j *job) {
	r, event := j.entry.rule, j.entry.failure.Event()
	switch {
	case event.Kind == secret.Waiting:
	case j.sent:
		r.counts.failed++
		if j.conf.Budget != nil && j.entry.refused {
			j.conf.Budget.Failed(j.name)
		}
		s.sched.Complain("cannot get a certificate on demand", j.err, "rule", r.conf.Name, "name", j.name, "next_try", j.entry.failure.NextTry)
	default: // a flood of refusals is no failure
		s.sched.Complain("no order for a name on demand", j.err, "rule", r.conf.Name, "name", j.name)
		return
	}
	s.observe(r, event)
}

func (s *Set) observe(r *rule, event secret.Event) {
	event.Secret, event.Authority = r.conf.Name, r.authority()
	s.sched.Say(func() { s.cfg.Observe(event) })
}
