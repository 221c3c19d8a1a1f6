package access

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"
)

// lookEvery is how often the wall clock is checked: timers stop while the machine
// sleeps and do not notice a changed clock.
const lookEvery = 30 * time.Second

// early is how long before its end a yes is refreshed; jitter takes off up to half, so
// that refreshes are spread out.
func (c *Config) early() time.Duration { return c.Allow / 5 }

// slow is how long a review may take until it cannot be told what it says.
func (c *Config) slow() time.Duration { return 2 * c.Deadline }

// retry is how long after an error a yes is reviewed again.
func (c *Config) retry() time.Duration { return c.Allow / 20 }

// maxNames is how many held names of a service account are remembered, on average.
const maxNames = 10

type answer int

const (
	unknown answer = iota
	denied
	allowed
	unsure // the API server cannot tell
)

// desk is the state of one cluster.
type desk struct {
	slots   chan struct{} // one for each review in progress
	entries map[Subject]*entry
	waiting map[*watch]Subject // watchers for which there is no room
	names   int                // held by all entries
	failed  time.Time          // when an error was last logged
}

// entry is the state of one subject, guarded by Access.mu.
type entry struct {
	subject Subject
	watches map[*watch]struct{}
	timer   *time.Timer // next check; nil while there is no watcher

	answer       answer    // never unsure
	since, until time.Time // validity of the answer
	next         time.Time // when to refresh it if watched
	failing      bool      // the last review failed
	told         answer    // what the watchers know
	waited       bool      // Peek returned ErrNotReady

	yes  time.Time           // when the last yes was asked for; zero after a no
	held map[string]struct{} // secrets that were served under it

	cancel context.CancelFunc // of the review in progress; nil for none
	began  time.Time          // when it was asked for
	round  int                // the current review; results of earlier ones are dropped
}

// counts reports whether the answer is valid at now. Setting the clock back must not
// extend it.
func (e *entry) counts(now time.Time) bool {
	return e.answer != unknown && !now.Before(e.since) && now.Before(e.until)
}

// verdict returns the answer at now.
func (e *entry) verdict(c *Config, now time.Time) answer {
	switch slow := e.cancel != nil && now.Sub(e.began) >= c.slow(); {
	case e.counts(now):
		return e.answer
	case !e.failing && !slow:
		return unknown
	case !e.yes.IsZero() && !now.Before(e.yes.Add(c.Outage)):
		return denied
	}
	return unsure
}

// said returns the error that stands for the answer, for a secret of that name. Setting the
// clock back must not make a right last.
func (e *entry) said(c *Config, name string, now time.Time) error {
	_, holds := e.held[name]
	switch v := e.verdict(c, now); {
	case v == allowed, v == unsure && holds && !now.Before(e.yes):
		return nil
	case v == denied:
		return ErrDenied
	}
	return ErrNotReady
}

// due reports whether an answer that does not count is to be asked for. After a failure that
// takes a while, unless the clock was set back.
func (e *entry) due(c *Config, now time.Time) bool {
	return !e.failing || !now.Before(e.next) || e.next.Sub(now) > c.Deny
}

func (d *desk) hold(e *entry, name string, most int) {
	if _, held := e.held[name]; held || d.names >= most {
		return
	}
	if e.held == nil {
		e.held = map[string]struct{}{}
	}
	e.held[name] = struct{}{}
	d.names++
}

func (d *desk) release(e *entry) {
	d.names -= len(e.held)
	e.held = nil
}

// forget drops the answer and a review in progress. When the last yes was is remembered:
// otherwise a cluster that is swapped again and again would never be away for too long.
func (d *desk) forget(e *entry) {
	d.release(e)
	e.answer, e.failing, e.round = unknown, false, e.round+1
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
		d = &desk{slots: make(chan struct{}, a.cfg.Parallel), entries: map[Subject]*entry{}, waiting: map[*watch]Subject{}}
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
	evict := func(e *entry, yes bool) bool {
		if yes = yes && len(e.watches) == 0 && e.cancel == nil; yes {
			d.release(e)
		}
		return yes
	}
	maps.DeleteFunc(d.entries, func(_ Subject, e *entry) bool { return evict(e, !e.counts(now)) })
	maps.DeleteFunc(d.entries, func(_ Subject, e *entry) bool { return evict(e, len(d.entries) >= most) })
	return len(d.entries) < most
}

// settle records the result of a review that started at asked.
func (d *desk) settle(e *entry, c *Config, says answer, err error, asked, now time.Time) {
	if e.failing = err != nil; e.failing {
		e.next = now.Add(c.Deny/2 + rand.N(c.Deny/2)) // not all at once when it is back
		if e.answer == allowed && e.counts(now) {
			e.next = now.Add(c.retry())
		}
		return
	}
	e.answer, e.since, e.until = says, asked, asked.Add(c.Deny)
	e.next, e.yes = e.until, time.Time{}
	if says == denied {
		d.release(e)
		return
	}
	half := c.early() / 2
	e.until, e.yes = asked.Add(c.Allow), asked
	e.next = e.until.Add(-half - rand.N(half))
}

// concerned returns the watches to notify of the answer. That it cannot be told is news only to
// those who wait for an answer, as they may hold a secret.
func (e *entry) concerned(v answer) map[*watch]struct{} {
	switch {
	case v == e.told && (v == unsure || !e.waited), v == unsure && !e.waited:
		return nil
	}
	e.told, e.waited = v, e.waited && v == unsure
	return maps.Clone(e.watches)
}

// arm sets the timer of a watched entry.
func (a *Access) arm(e *entry) {
	e.disarm()
	if a.closed || len(e.watches) == 0 || e.idle() {
		return
	}
	now := a.cfg.Now()
	at := now.Add(lookEvery)
	for _, t := range []time.Time{e.next, e.until, e.yes.Add(a.cfg.Outage), e.began.Add(a.cfg.slow())} {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	e.timer = time.AfterFunc(at.Sub(now), func() { a.look(e) })
}

// idle reports whether the API server was never asked.
func (e *entry) idle() bool { return e.answer == unknown && !e.failing && e.cancel == nil }

// look refreshes the answer when it is due, and tells what time has made of it.
func (a *Access) look(e *entry) {
	a.mu.Lock()
	var concerned map[*watch]struct{}
	if !a.closed && len(e.watches) > 0 && !e.idle() {
		now := a.cfg.Now()
		if counts := e.counts(now); !counts && e.due(&a.cfg, now) || counts && !now.Before(e.next) {
			a.ask(e)
		}
		if v := e.verdict(&a.cfg, now); v == denied || v == unsure {
			concerned = e.concerned(v)
		}
		a.arm(e)
	}
	a.mu.Unlock()
	notify(concerned)
}
