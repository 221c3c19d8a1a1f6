package identities

import (
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// introduce takes the first certificate issued for a token: its SPIFFE ID is the token's
// owner.
func (c *Set) introduce(f *flight, now time.Time) {
	e, id := f.entry, f.item.Identity.SPIFFEID.String()
	f.credential.prove(id, now)
	c.strangers.succeeded(f.by)
	there := c.entries[id]
	if there == nil {
		c.dropNameless(e)
		e.id, e.token = id, nil
		c.entries[id] = e
		c.arrive(e, f.item)
		return
	}
	c.merge(e, there)
	// Discard this extra certificate: serving it would notify every stream of the identity
	// whenever a new token arrives. Use it only if a rotation is due.
	if there.Rotation.Asking() || there.Rotation.Waiting() || !there.Rotation.Needed(rotation.Now(now)) {
		clear(f.item.Key)
		c.counts.Joins++
		c.sched.Schedule(there)
		return
	}
	c.arrive(there, f.item)
}

// merge moves the sessions of an unverified entry to that of their identity.
func (c *Set) merge(from, to *entry) {
	moving := from.sessions
	from.sessions = nil
	c.sched.Remove(from)
	for _, s := range moving {
		if to.bounded() >= c.cfg.Limits.Streams {
			s.entry = nil
			c.end(s, limited("streams of one identity", c.cfg.Limits.Streams))
			continue
		}
		to.add(s)
		c.tellSession(s)
	}
}

// arrive takes a verified certificate, to serve now or when it becomes valid.
func (c *Set) arrive(e *entry, item *secret.Item) {
	e.failure = nil
	c.sched.Issued(e, item)
}
