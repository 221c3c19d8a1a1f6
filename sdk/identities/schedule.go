package identities

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// turns: of so many starts one goes to an identity that is known, if one waits, however
// many tokens there are that nobody has vouched for.
const turns = 4

// sweep is how often ended tokens are forgotten.
const sweep = time.Minute

// run keeps the time until the Set is closed.
func (c *Set) run() {
	timer := time.NewTimer(look)
	defer timer.Stop()
	swept := time.Now()
	for {
		c.checkRoots()
		wait := c.tick(&swept)
		timer.Reset(wait)
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		case <-c.wake:
		}
	}
}

// tick does what is due and returns the time until there is more.
func (c *Set) tick(swept *time.Time) time.Duration {
	c.mu.Lock()
	defer c.unlock()
	before := c.offset.apart
	if c.offset.jumped() {
		c.lookAtAll(c.offset.apart - before)
	}
	now := c.now()
	for e := c.deadlines.first(); e != nil && !e.due.After(now); e = c.deadlines.first() {
		c.step(e, now)
	}
	if time.Since(*swept) >= sweep {
		c.forgetTokens(func(cred *credential) bool { return !cred.proven(now) })
		*swept = time.Now()
	}
	c.dispatch(now)
	if e := c.deadlines.first(); e != nil {
		return min(look, max(e.due.Sub(now), time.Millisecond))
	}
	return look
}

// lookAtAll follows a jump of the wall clock. A machine that slept has slept through
// the pauses, too.
func (c *Set) lookAtAll(jump time.Duration) {
	c.cfg.Log.Info("clock jumped, rechecking all deadlines", "by", jump)
	for _, e := range c.deadlines.all() {
		if t := e.trouble; t != nil && jump > 0 && !t.until.IsZero() {
			t.until = t.until.Add(-jump)
		}
		c.schedule(e)
	}
}

// schedule has the clock look at an entry that has changed.
func (c *Set) schedule(e *entry) {
	if !e.gone {
		c.step(e, c.now())
		c.nudge()
	}
}

// step does what is due for an entry, and sets when to look at it again.
func (c *Set) step(e *entry, now time.Time) {
	if e.next != nil && !e.next.NotBefore.After(now) {
		item := e.next
		e.next = nil
		c.install(e, item, now)
	}
	if c.idleOver(e, now) {
		if e.id != "" {
			c.counts.Released++
		}
		c.letGo(e)
		return
	}
	c.mourn(e, now)
	c.enqueue(e, now)
	if at := e.nextDue(now, c.cfg.Idle); at.IsZero() {
		c.deadlines.put(e, now.Add(look)) // nothing is; it is cheap to look
	} else {
		c.deadlines.put(e, at)
	}
}

// idleOver tells whether nobody has needed the entry for long enough. One without an
// identity is kept for the pause after its refusal only.
func (c *Set) idleOver(e *entry, now time.Time) bool {
	if len(e.sessions) > 0 || e.flying {
		return false
	}
	if e.id == "" {
		return e.left() == 0
	}
	return !now.Before(e.idle.Add(c.cfg.Idle))
}

// mourn tells once that what is held has expired while somebody was there for it.
func (c *Set) mourn(e *entry, now time.Time) {
	if e.item == nil || e.mourned || len(e.sessions) == 0 || !e.item.Expired(now) {
		return
	}
	e.mourned = true
	item := e.item
	c.tell(secret.Event{Type: secret.Expired, NotAfter: item.NotAfter})
	c.say(func() {
		c.cfg.Log.Error("certificate expired before it could be renewed", "identity", item.Identity.String(), "not_after", item.NotAfter)
	})
}

// enqueue has an entry asked for, or takes it off the list.
func (c *Set) enqueue(e *entry, now time.Time) {
	q := &c.ready
	if e.id == "" {
		q = &c.readyNew
	}
	switch {
	case !e.wants(now):
		q.remove(e)
	case e.rankAt == 0:
		q.put(e, e.urgency(now))
	}
}

// dispatch sends requests on their way while fewer are than may be.
func (c *Set) dispatch(now time.Time) {
	for len(c.idle) > 0 && c.ctx.Err() == nil {
		q := c.pickQueue()
		e := q.first()
		if e == nil {
			return
		}
		q.remove(e)
		if e.wants(now) {
			c.start(e, now)
		}
	}
}

// pickQueue returns where the next request comes from: whoever has waited longest, and
// a renewal only where nobody waits. But tokens that nobody has vouched for do not keep
// the others from their turn.
func (c *Set) pickQueue() *queue {
	known, other := c.ready.first(), c.readyNew.first()
	switch {
	case other == nil:
		return &c.ready
	case known == nil:
		return &c.readyNew
	}
	c.starts++
	if c.starts%turns == 0 || known.rank.Before(other.rank) {
		return &c.ready
	}
	return &c.readyNew
}

// letGo forgets an entry. Its key is overwritten: nobody has been served it for the
// idle time. What a stream once sent, and what the garbage collector has moved, is not
// reached by that.
func (c *Set) letGo(e *entry) {
	if e.gone {
		return
	}
	e.gone = true
	c.deadlines.remove(e)
	if e.id != "" {
		c.ready.remove(e)
		delete(c.entries, e.id)
	} else {
		c.dropNameless(e)
	}
	for _, item := range []*secret.Item{e.item, e.next} {
		if item != nil {
			clear(item.Key)
		}
	}
}

// dropNameless parts a token from the entry that it had while nobody vouched for it.
func (c *Set) dropNameless(e *entry) {
	c.readyNew.remove(e)
	c.nameless--
	if e.token.entry == e {
		e.token.entry = nil
	}
	if t := e.trouble; t != nil && t.refused != nil {
		if c.strangers[t.by]--; c.strangers[t.by] <= 0 {
			delete(c.strangers, t.by)
		}
	}
}
