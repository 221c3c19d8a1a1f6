package access

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// lookEvery is how often the wall clock is checked: timers stop while the machine
// sleeps and do not notice a changed clock.
const lookEvery = 30 * time.Second

// early is how long before its end a yes is refreshed; jitter takes off up to half, so
// that refreshes are spread out.
func (c *Config) early() time.Duration { return c.Allow / 5 }

// retry is how long after an error a yes is reviewed again.
func (c *Config) retry() time.Duration { return c.Allow / 20 }

type answer int

const (
	unknown answer = iota
	denied
	allowed
)

// desk is the state of one cluster.
type desk struct {
	slots   chan struct{} // one for each review in progress
	entries map[Subject]*entry
	failed  time.Time // when an error was last logged
}

// entry is the state of one subject, guarded by Access.mu.
type entry struct {
	subject Subject
	watches map[*watch]struct{}
	timer   *time.Timer // next check; nil while there is no watcher

	answer       answer
	since, until time.Time // validity of the answer
	next         time.Time // when to refresh it if watched
	told         answer    // what the watchers know
	waited       bool      // Peek returned ErrNotReady

	cancel context.CancelFunc // of the review in progress; nil for none
	round  int                // the current review; results of earlier ones are dropped
}

// watch is one registered watcher.
type watch struct {
	notify func()
	gone   atomic.Bool
}

// counts reports whether the answer is valid at now. Setting the clock back must not
// extend it.
func (e *entry) counts(now time.Time) bool {
	return e.answer != unknown && !now.Before(e.since) && now.Before(e.until)
}

func (e *entry) said() error {
	if e.answer == allowed {
		return nil
	}
	return ErrDenied
}

// forget drops the answer and a review in progress.
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

// entry returns the entry of s, or nil if there is no room.
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

// makeRoom evicts expired entries, or else any unwatched one: it can be reviewed again.
func (d *desk) makeRoom(most int, now time.Time) bool {
	idle := func(e *entry) bool { return len(e.watches) == 0 && e.cancel == nil }
	maps.DeleteFunc(d.entries, func(_ Subject, e *entry) bool { return idle(e) && !e.counts(now) })
	maps.DeleteFunc(d.entries, func(_ Subject, e *entry) bool { return idle(e) && len(d.entries) >= most })
	return len(d.entries) < most
}

// settle records the result of a review that started at asked.
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

// concerned returns the watches to notify of the answer.
func (e *entry) concerned() map[*watch]struct{} {
	if e.answer == e.told && !e.waited {
		return nil
	}
	e.told, e.waited = e.answer, false
	return maps.Clone(e.watches)
}

// arm sets the timer of a watched entry.
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

// look refreshes the answer when it is due.
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
