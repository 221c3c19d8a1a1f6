package ondemand

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// hooks are the Set's part in the scheduling.
func (s *Set) hooks() schedule.Hooks[*entry] {
	return schedule.Hooks[*entry]{
		Look: s.look, Over: func(e *entry, now time.Time) bool { return e.over(rotation.Now(now)) },
		Round: s.sweep, Removed: s.removed, Served: s.served, Expired: s.expired, Due: s.due, Place: s.place, Request: s.request,
	}
}

// look does what is due for an entry beside its rotation.
func (s *Set) look(e *entry, now time.Time) {
	if e.cover != nil {
		s.follow(e, now)
	}
	if e.stale {
		s.refresh(e, now)
	}
	if e.waiting && e.unread(now) && e.again.Over(rotation.Now(now)) {
		s.read(e)
	}
	e.Rotation.Want(e.wanted(now))
	undecided := !e.decided && !e.deciding
	if e.waiting && e.wait.Over(rotation.Now(now)) {
		e.waiting, e.late = false, e.decided
		if undecided {
			e.rule.refuse(Undecided)
		} else {
			e.rule.refuse(TooLate)
		}
		s.notify(e)
		e.Rotation.Want(e.wanted(now))
	}
	if e.waiting && undecided && e.rule.conf.Ask != nil && e.again.Over(rotation.Now(now)) {
		s.decide(e)
	}
}

// due returns when to look at the entry next; zero for in half a minute.
func (s *Set) due(e *entry, now rotation.Time, wake time.Duration) time.Time {
	sooner := func(wait time.Duration) {
		if wait > 0 && (wake == 0 || wait < wake) {
			wake = wait
		}
	}
	if e.waiting || e.stale {
		sooner(e.again.Left(now))
	}
	if e.waiting {
		sooner(e.wait.Left(now))
	}
	if e.cover != nil {
		sooner(schedule.Look)
	}
	if wake == 0 {
		return time.Time{}
	}
	return now.Wall.Add(wake)
}

// place ranks renewals by the end of the certificate and new names by their turn. What no client
// subscribes to comes last.
func (s *Set) place(e *entry, now time.Time) (p *schedule.Pool[*entry], queue int, rank time.Time) {
	p, queue, rank = e.rule.pool, schedule.First, now
	if e.held() {
		queue, rank = schedule.Renewals, e.ends()
	}
	if e.held() && e.watchers.Len() == 0 {
		queue = schedule.Idle
	}
	return p, queue, rank
}

// served announces a certificate that is served from now on.
func (s *Set) served(e *entry, _ time.Time) {
	item, r := e.Item, e.rule
	e.waiting = false
	s.notify(e)
	s.observe(r, secret.Event{Kind: secret.Rotated, NotAfter: item.NotAfter})
	name := r.conf.Name
	s.sched.Say(func() {
		s.cfg.Log.Info("serving new certificate on demand", "rule", name, "name", item.Name, "authority", item.Authority, "serial", item.Serial,
			"fingerprint", item.Fingerprint, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	})
}

// expired reports that the certificate of a name in use expired.
func (s *Set) expired(e *entry) {
	ends, name, r := e.ends(), e.name, e.rule
	s.observe(r, secret.Event{Kind: secret.Expired, NotAfter: ends})
	s.sched.Say(func() {
		s.cfg.Log.Error("certificate expired before it could be renewed", "rule", r.conf.Name, "name", name, "not_after", ends)
	})
}

// removed takes an entry out of the Set's own lists.
func (s *Set) removed(e *entry) {
	e.recount()
	delete(s.names, e.name)
	if e.held() {
		e.rule.counts.dropped++
		s.notify(e) // a client that subscribes anew has it decided anew
	}
	if e.stored {
		s.abandon(e)
	}
}
