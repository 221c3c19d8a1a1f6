package access

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// lookEvery is how often the wall clock is looked at: timers stand still while the machine
// sleeps, and know nothing of a clock that is set.
const lookEvery = 30 * time.Second

// early is how long before the end of a yes it is asked again, up to a half less so that
// not all ask at once.
func (c *Config) early() time.Duration { return c.Allow / 5 }

// retry is how long after an error a yes is asked once more.
func (c *Config) retry() time.Duration { return c.Allow / 20 }

type answer int

const (
	unknown answer = iota
	denied
	allowed
)

// desk is what is known of one cluster.
type desk struct {
	slots   chan struct{} // one for each review on its way
	entries map[Subject]*entry
	failed  time.Time // when an error was logged
}

// entry is what is known of one subject. It is guarded by Access.mu.
type entry struct {
	subject Subject
	watches map[*watch]struct{}
	timer   *time.Timer // looks again; nil while nobody watches

	answer       answer
	since, until time.Time // when the answer counts
	next         time.Time // when it is asked again if somebody watches
	told         answer    // what those who watch know
	waited       bool      // Peek had no answer

	cancel context.CancelFunc // of the review on its way; nil for none
	round  int                // which review counts
}

// watch is one who is to be told.
type watch struct {
	notify func()
	gone   atomic.Bool
}

// counts tells whether the answer is believed at now. A clock that was set back must not
// make it last.
func (e *entry) counts(now time.Time) bool {
	return e.answer != unknown && !now.Before(e.since) && now.Before(e.until)
}

func (e *entry) said() error {
	if e.answer == allowed {
		return nil
	}
	return ErrDenied
}

// forget drops the answer, and one that is on its way.
func (e *entry) forget() {
	e.answer, e.round = unknown, e.round+1
	e.disarm()
	if e.cancel != nil {
		e.cancel()
		e.cancel = nil
	}
}

func (e *entry) disarm() {
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// entry returns what is known of s, or nil where no more fits.
func (a *Access) entry(s Subject) *entry {
	d := a.desks[s.Cluster]
	if d == nil {
		d = &desk{slots: make(chan struct{}, a.cfg.Parallel), entries: map[Subject]*entry{}}
		a.desks[s.Cluster] = d
	}
	if e := d.entries[s]; e != nil {
		return e
	}
	if len(d.entries) >= a.cfg.Most && !d.makeRoom(a.cfg.Most, a.cfg.Now()) {
		return nil
	}
	e := &entry{subject: s, watches: map[*watch]struct{}{}}
	d.entries[s] = e
	return e
}

// makeRoom drops what has ended, or else any one that nobody watches: it is only asked
// for again.
func (d *desk) makeRoom(most int, now time.Time) bool {
	idle := func(e *entry) bool { return len(e.watches) == 0 && e.cancel == nil }
	maps.DeleteFunc(d.entries, func(_ Subject, e *entry) bool { return idle(e) && !e.counts(now) })
	maps.DeleteFunc(d.entries, func(_ Subject, e *entry) bool { return idle(e) && len(d.entries) >= most })
	return len(d.entries) < most
}

// settle takes what a review that began at asked came to.
func (e *entry) settle(c *Config, says answer, err error, asked, now time.Time) {
	if err != nil && e.answer == allowed && e.counts(now) {
		e.next = now.Add(c.retry())
		return
	}
	e.answer, e.since, e.until = says, asked, asked.Add(c.Deny)
	e.next = e.until
	if says == allowed {
		half := c.early() / 2
		e.until = asked.Add(c.Allow)
		e.next = e.until.Add(-half - rand.N(half))
	}
}

// concerned returns those who are to be told of the answer.
func (e *entry) concerned() map[*watch]struct{} {
	if e.answer == e.told && !e.waited {
		return nil
	}
	e.told, e.waited = e.answer, false
	return maps.Clone(e.watches)
}

// arm sets when an entry that somebody watches is looked at again.
func (a *Access) arm(e *entry) {
	e.disarm()
	if a.closed || len(e.watches) == 0 || e.answer == unknown {
		return
	}
	now := a.cfg.Now()
	at := e.next
	if e.until.Before(at) {
		at = e.until
	}
	e.timer = time.AfterFunc(max(0, min(at.Sub(now), lookEvery)), func() { a.look(e) })
}

// look asks again where it is time to.
func (a *Access) look(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(e.watches) == 0 || e.answer == unknown {
		return
	}
	if now := a.cfg.Now(); !e.counts(now) || !now.Before(e.next) {
		a.ask(e)
		return
	}
	a.arm(e)
}
