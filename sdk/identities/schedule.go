package identities

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// sweep is the interval at which expired tokens are removed.
const sweep = time.Minute

// hooks are the Set's part in the scheduling.
func (c *Set) hooks() schedule.Hooks[*entry] {
	return schedule.Hooks[*entry]{
		Begin: c.checkRoots, Round: c.round,
		Over: c.idleOver, Removed: c.removed, Served: c.served, Expired: c.reportExpired,
		Due: c.nextDue, Place: c.place, Request: c.request, Advised: c.advised,
	}
}

// round removes expired tokens now and then.
func (c *Set) round(now time.Time) {
	if time.Since(c.swept) >= sweep {
		c.forgetTokens(func(cred *credential) bool { return !cred.proven(now) })
		c.swept = time.Now()
	}
}

// idleOver reports whether the entry has been unused for long enough. One without an
// identity is kept only for the pause after its refusal.
func (c *Set) idleOver(e *entry, now time.Time) bool {
	if len(e.sessions) > 0 || e.Rotation.Asking() {
		return false
	}
	if e.id == "" {
		return e.remembered(rotation.Now(now)) <= 0
	}
	if now.Before(e.idle.Add(c.cfg.Idle)) {
		return false
	}
	c.counts.Released++
	return true
}

// nextDue returns when to look at the entry next; zero for never. wake is what the rotation
// asks for.
func (c *Set) nextDue(e *entry, now rotation.Time, wake time.Duration) time.Time {
	if len(e.sessions) == 0 {
		rest := e.idle.Add(c.cfg.Idle).Sub(now.Wall)
		if e.id == "" {
			rest = e.remembered(now)
		}
		if rest > 0 && (wake == 0 || rest < wake) {
			wake = rest
		}
	}
	if wake == 0 {
		return time.Time{}
	}
	return now.Wall.Add(wake)
}

// place ranks an entry by when it began to wait if it holds nothing, otherwise by when its
// certificate expires.
func (c *Set) place(e *entry, now time.Time) (p *schedule.Pool[*entry], queue int, rank time.Time) {
	p, queue, rank = c.pool, schedule.Renewals, now
	if e.id == "" {
		queue = schedule.First
	}
	if e.Item != nil {
		rank = e.Item.NotAfter
	}
	return p, queue, rank
}

// reportExpired reports that the held certificate expired while a stream needed it.
func (c *Set) reportExpired(e *entry) {
	item := e.Item
	c.tell(secret.Event{Kind: secret.Expired, NotAfter: item.NotAfter})
	c.sched.Say(func() {
		c.cfg.Log.Error("certificate expired before it could be renewed", "identity", item.Identity.String(), "not_after", item.NotAfter)
	})
}

// served counts and announces a certificate that is served from now on.
func (c *Set) served(e *entry, _ time.Time) {
	item := e.Item
	c.counts.Rotations++
	c.tellSessions(e)
	c.tell(secret.Event{Kind: secret.Rotated, NotAfter: item.NotAfter})
	c.sched.Say(func() {
		c.cfg.Log.Debug("serving new certificate", "identity", item.Identity.String(), "serial", item.Serial,
			"fingerprint", item.Fingerprint, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	})
}

// advised counts a renewal that the authority's advice moved.
func (c *Set) advised(_ *entry, advice *secret.Advice) {
	c.counts.Advised++
	c.counts.Advice = advice
}

// removed takes an entry out of the Set's own lists.
func (c *Set) removed(e *entry) {
	if e.id != "" {
		delete(c.entries, e.id)
	} else {
		c.dropNameless(e)
	}
}

// dropNameless separates a token from its unverified entry.
func (c *Set) dropNameless(e *entry) {
	c.nameless--
	if e.token.entry == e {
		e.token.entry = nil
	}
	switch t := e.failure; {
	case t == nil:
	case t.refused != nil:
		c.strangers.addRefused(t.by, -1)
	case t.failing:
		c.strangers.failing.change(t.by, -1)
	}
}
