package identities

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// introduce takes the first certificate issued for a token: its SPIFFE ID is the token's
// owner.
func (c *Set) introduce(f *flight, now time.Time) {
	e, id := f.entry, f.item.Identity.SPIFFEID.String()
	f.credential.prove(id, now)
	there := c.entries[id]
	if there == nil {
		c.dropNameless(e)
		e.id, e.token = id, nil
		c.entries[id] = e
		c.arrive(e, f.item, now)
		return
	}
	c.merge(e, there)
	// Discard this extra certificate: serving it would notify every stream of the identity
	// whenever a new token arrives. Use it only if a rotation is due.
	if there.flying || there.next != nil || !there.outdated(now) {
		clear(f.item.Key)
		c.counts.Joins++
		c.schedule(there)
		return
	}
	c.arrive(there, f.item, now)
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
func (c *Set) arrive(e *entry, item *secret.Item, now time.Time) {
	e.trouble = nil
	if item.NotBefore.After(now) {
		e.next = item
	} else {
		c.install(e, item, now)
	}
	c.schedule(e)
}

// install serves a certificate that is now valid.
func (c *Set) install(e *entry, item *secret.Item, now time.Time) {
	if item.Expired(now) {
		return // the clock jumped past it
	}
	item.Issued = now
	e.item, e.mourned, e.replace = item, false, time.Time{}
	c.counts.Rotations++
	c.tellSessions(e)
	c.tell(secret.Event{Type: secret.Rotated, NotAfter: item.NotAfter})
	c.say(func() {
		c.cfg.Log.Debug("serving new certificate", "identity", item.Identity.String(), "serial", item.Serial,
			"fingerprint", item.Fingerprint, "not_after", item.NotAfter, "renew_at", item.RenewAt)
	})
}
