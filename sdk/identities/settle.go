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
	if there.rotation.Asking() || there.rotation.Waiting() || !there.rotation.Needed(rotation.Now(now)) {
		clear(f.item.Key)
		c.counts.Joins++
		c.schedule(there)
		return
	}
	c.arrive(there, f.item)
}

// merge moves the sessions of an unverified entry to that of their identity.
func (c *Set) merge(from, to *entry) {
	moving := from.sessions
	from.sessions = nil
	c.letGo(from)
	for _, s := range moving {
		if len(to.sessions) >= c.cfg.Limits.Streams {
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
	e.failure, e.next = nil, item
	e.rotation.Issued(rotation.Term{Begins: item.NotBefore, Renew: item.RenewAt, Ends: item.NotAfter})
	c.schedule(e)
}

// install serves the certificate that waited to begin.
func (c *Set) install(e *entry, now time.Time) {
	item := e.next
	item.Issued = now
	e.item, e.next = item, nil
	c.advisable(e, now)
	c.counts.Rotations++
	c.tellSessions(e)
	c.tell(secret.Event{Kind: secret.Rotated, NotAfter: item.NotAfter})
	c.say(func() {
		c.cfg.Log.Debug("serving new certificate", "identity", item.Identity.String(), "serial", item.Serial,
			"fingerprint", item.Fingerprint, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	})
}
