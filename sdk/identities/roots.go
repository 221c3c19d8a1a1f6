package identities

import (
	"slices"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rootsHaveMoved requests a check of all certificates against the new roots.
func (c *Set) rootsHaveMoved() {
	c.mu.Lock()
	c.rootsMoved = true
	c.mu.Unlock()
	c.nudge()
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
		roots[i], _ = c.signers[0].Leads(item)
	}
	c.mu.Lock()
	defer c.unlock()
	losses := 0
	for i, item := range lost {
		if e := c.entries[item.Identity.SPIFFEID.String()]; e != nil && e.item != nil && e.item.Fingerprint == item.Fingerprint {
			losses += c.follow(e, roots[i])
		}
	}
	if losses > 0 {
		c.say(func() {
			c.cfg.Log.Warn("certificates no longer chain to their authority's roots, replacing them", "certificates", losses)
		})
	}
}

// leftBehind returns the certificates whose root is no longer served.
func (c *Set) leftBehind() (lost []*secret.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rootsMoved {
		return nil
	}
	c.rootsMoved = false
	bundle, err := c.cfg.Manager.Peek(secret.Caller{}, c.rootsAt)
	if err != nil {
		return nil
	}
	for _, e := range c.entries {
		if e.item != nil && !slices.Contains(bundle.RootFingerprints, e.item.RootFingerprint) {
			lost = append(lost, e.item)
		}
	}
	return lost
}

// follow records the root that a certificate now chains to. It returns 1 if there is none.
func (c *Set) follow(e *entry, root string) int {
	if root != "" {
		item := *e.item
		item.RootFingerprint = root
		e.item = &item // same content, so no notification
		e.rotation.RootFound()
		return 0
	}
	e.rotation.RootLoss(rotation.Now(c.now()), 0)
	c.schedule(e)
	return 1
}
