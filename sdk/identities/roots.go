package identities

import (
	"slices"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rootsHaveMoved requests a check of all certificates against the new roots.
func (c *Set) rootsHaveMoved() {
	c.sched.Lock()
	c.rootsMoved = true
	c.sched.Unlock()
	c.sched.Nudge()
}

// checkRoots finds certificates that no longer chain to a root. The root's fingerprint
// settles nearly all of them.
func (c *Set) checkRoots() {
	lost := c.leftBehind()
	if len(lost) == 0 {
		return
	}
	roots := make([]string, len(lost))
	for i, item := range lost { // without the lock, as Leads verifies signatures
		roots[i], _ = c.pool.Leads(item)
	}
	c.sched.Lock()
	defer c.sched.Unlock()
	losses := 0
	for i, item := range lost {
		if e := c.entries[item.Identity.SPIFFEID.String()]; e != nil && e.Item != nil && e.Item.Fingerprint == item.Fingerprint {
			losses += c.follow(e, roots[i])
		}
	}
	if losses > 0 {
		c.sched.Say(func() {
			c.cfg.Log.Warn("certificates no longer chain to their authority's roots, replacing them", "certificates", losses)
		})
	}
}

// leftBehind returns the certificates whose root is no longer served.
func (c *Set) leftBehind() (lost []*secret.Item) {
	c.sched.Lock()
	defer c.sched.Unlock()
	if !c.rootsMoved {
		return nil
	}
	c.rootsMoved = false
	bundle, err := c.cfg.Manager.Peek(secret.Caller{}, c.rootsAt)
	if err != nil {
		return nil
	}
	for _, e := range c.entries {
		if e.Item != nil && !slices.Contains(bundle.RootFingerprints, e.Item.RootFingerprint) {
			lost = append(lost, e.Item)
		}
	}
	return lost
}

// follow records the root that a certificate now chains to. It returns 1 if there is none.
func (c *Set) follow(e *entry, root string) int {
	if root != "" {
		item := *e.Item
		item.RootFingerprint = root
		e.Item = &item // same content, so no notification
		e.Rotation.RootFound()
		return 0
	}
	e.Rotation.RootLoss(rotation.Now(c.sched.Now()), 0)
	c.sched.Schedule(e)
	return 1
}
