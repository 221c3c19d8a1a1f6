package identities

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// turns: every fourth start goes to a known identity, if one waits, however many
// unverified tokens there are.
const turns = 4

// sweep is the interval at which expired tokens are removed.
const sweep = time.Minute

// run schedules until the Set is closed.
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

// tick does what is due and returns the time until more is.
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

// lookAtAll reschedules all entries after a clock jump.
func (c *Set) lookAtAll(jump time.Duration) {
	c.say(func() { c.cfg.Log.Info("clock jumped, rechecking all deadlines", "by", jump) })
	for _, e := range c.deadlines.all() {
		c.schedule(e)
	}
}

// schedule reconsiders an entry that has changed.
func (c *Set) schedule(e *entry) {
	if !e.gone {
		c.step(e, c.now())
		c.nudge()
	}
}

// step does what is due for an entry and sets its next due time.
func (c *Set) step(e *entry, now time.Time) {
	at := rotation.Now(now)
	do := e.rotation.Step(at)
	if do.Install {
		c.install(e, now)
		do = e.rotation.Step(at)
	}
	if !e.rotation.Waiting() {
		e.next = nil
	}
	if c.idleOver(e, now) {
		if e.id != "" {
			c.counts.Released++
		}
		c.letGo(e)
		return
	}
	if do.ReportExpired {
		c.reportExpired(e)
	}
	c.enqueue(e, now, do.Ask)
	if do.Consult {
		c.consult(e)
	}
	if due := e.nextDue(at, do.Wake, c.cfg.Idle); due.IsZero() {
		c.deadlines.put(e, now.Add(look)) // nothing is due, and a look is cheap
	} else {
		c.deadlines.put(e, due)
	}
}

// idleOver reports whether the entry has been unused for long enough. One without an
// identity is kept only for the pause after its refusal.
func (c *Set) idleOver(e *entry, now time.Time) bool {
	if len(e.sessions) > 0 || e.rotation.Asking() {
		return false
	}
	if e.id == "" {
		return e.remembered(rotation.Now(now)) <= 0
	}
	return !now.Before(e.idle.Add(c.cfg.Idle))
}

// reportExpired reports that the held certificate expired while a stream needed it.
func (c *Set) reportExpired(e *entry) {
	item := e.item
	c.tell(secret.Event{Kind: secret.Expired, NotAfter: item.NotAfter})
	c.say(func() {
		c.cfg.Log.Error("certificate expired before it could be renewed", "identity", item.Identity.String(), "not_after", item.NotAfter)
	})
}

// enqueue adds an entry to its request queue, or removes it.
func (c *Set) enqueue(e *entry, now time.Time, ask bool) {
	q := &c.ready
	if e.id == "" {
		q = &c.readyNew
	}
	switch {
	case !ask:
		q.remove(e)
	case e.rankAt == 0:
		q.put(e, e.urgency(now))
	}
}

// dispatch starts requests while signers are free.
func (c *Set) dispatch(now time.Time) {
	for len(c.idle) > 0 && c.ctx.Err() == nil {
		q := c.pickQueue()
		e := q.first()
		if e == nil {
			return
		}
		q.remove(e)
		if e.rotation.Due(rotation.Now(now)) {
			c.start(e, now)
		}
	}
}

// pickQueue returns the queue for the next request: the one whose head has waited longest
// or expires first. Unverified tokens cannot keep known identities from their turn.
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

// letGo removes an entry. It leaves the key of an item that was served as it is: an embedder
// or a stream may hold the item still, and the garbage collector frees it after them.
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
	if e.next != nil {
		clear(e.next.Key) // it was never given out
	}
}

// dropNameless separates a token from its unverified entry.
func (c *Set) dropNameless(e *entry) {
	c.readyNew.remove(e)
	c.nameless--
	if e.token.entry == e {
		e.token.entry = nil
	}
	if t := e.failure; t != nil && t.refused != nil {
		c.strangers.addRefused(t.by, -1)
	}
}
