package ondemand

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Peek returns the certificate held for a name. It returns [secret.ErrNotReady] while a
// subscription waits for it, and [secret.ErrUnknown] if no rule matches, if it was refused, or if
// it was not had within Rule.Wait. A name in another case or with a final dot is known while it has
// a subscription. The caller makes no difference.
func (s *Set) Peek(_ secret.Caller, asked string) (*secret.Item, error) {
	name, err := names.Fold(asked)
	if err != nil {
		return nil, s.unknown(asked)
	}
	s.sched.Lock()
	defer s.sched.Unlock()
	e := s.names[name]
	switch {
	case s.closed:
		return nil, secret.ErrClosed
	case e == nil, asked != name && e.spellings[asked] == 0: // Watch has refused the latter
		return nil, secret.Unknown(asked)
	}
	if item := e.item(s.sched.Now()); item != nil {
		return item, nil
	}
	if e.waiting {
		return nil, secret.NotReady(asked, e.failure)
	}
	return nil, secret.Unknown(asked)
}

func (s *Set) unknown(asked string) error {
	if s.sched.Closed() {
		return secret.ErrClosed
	}
	return secret.Unknown(asked)
}

// Watch subscribes to a name: it calls notify, with the name as asked for, after each change of
// what Peek returns. A name that holds nothing yet is decided and ordered. The error is
// [secret.ErrUnknown] for a name that is refused at once; one that is refused later is tried again
// with the next Watch. The caller makes no difference.
func (s *Set) Watch(_ secret.Caller, asked string, notify func(name string)) (stop func(), err error) {
	name, err := names.Fold(asked)
	if err != nil {
		s.badName.Add(1)
		return nil, s.unknown(asked)
	}
	r := s.match(name)
	if r == nil || s.cfg.Reserved(name) || name != asked && s.cfg.Reserved(asked) {
		s.noRule.Add(1)
		return nil, s.unknown(asked)
	}
	s.sched.Lock()
	defer s.sched.Unlock()
	if s.closed {
		return nil, secret.ErrClosed
	}
	if r.removed { // a reload came between
		if r = s.match(name); r == nil {
			return nil, secret.Unknown(asked)
		}
	}
	if s.overspelled(name, asked) {
		r.refuse(Spelling)
		return nil, secret.Unknown(asked)
	}
	e, why := s.subscribe(name, r)
	if why != "" {
		r.refuse(why)
		return nil, secret.Unknown(asked)
	}
	s.spell(e, asked)
	remove := e.watchers.Add(func() { notify(asked) })
	s.sched.Schedule(e)
	return sync.OnceFunc(func() { remove(); s.left(e, asked) }), nil
}

// subscribe returns the entry of a name, or why there is none.
func (s *Set) subscribe(name string, r *rule) (*entry, Refusal) {
	now := s.sched.Now()
	s.claim(name, r, now) // a file of names has it by now, or the clock was set
	e := s.names[name]
	if e == nil {
		var why Refusal
		if e, why = s.enter(name, r, now); why != "" {
			return nil, why
		}
	}
	e.asked, e.used = now, now
	if e.rule != r { // by a file of names that has changed
		s.give(e, r)
		s.sched.Dequeue(e)
	}
	if e.item(now) != nil {
		return e, ""
	}
	if left := e.Rotation.Pausing(rotation.Now(now)); left > r.conf.Wait && !e.unread(now) {
		return nil, Failing
	}
	if !e.waiting {
		e.waiting, e.wait = true, rotation.NewPause(e.longestWait(now), rotation.Now(now))
	}
	s.readFirst(e)
	if !e.decided && !e.deciding && e.again.Over(rotation.Now(now)) {
		s.decide(e)
	}
	return e, ""
}

// enter makes the entry of a new name, or returns why it is refused.
func (s *Set) enter(name string, r *rule, now time.Time) (*entry, Refusal) {
	e := &entry{name: name, rule: r}
	e.cover = s.covering(e, now)
	if e.cover != nil {
		if r.covered >= r.conf.Names {
			return nil, Full
		}
		r.counts.covered++
	} else if why := s.admit(e); why != "" {
		return nil, why
	}
	e.recount()
	s.names[name] = e
	return e, ""
}

// left records that a subscription has ended.
func (s *Set) left(e *entry, asked string) {
	s.sched.Lock()
	defer s.sched.Unlock()
	s.unspell(e, asked)
	e.used = s.sched.Now()
	if e.watchers.Len() == 0 {
		e.waiting = false
		if e.deciding {
			e.giveUp()
		}
	}
	s.sched.Schedule(e)
}
