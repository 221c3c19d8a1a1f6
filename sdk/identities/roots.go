package identities

import (
	"slices"

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
	strays := c.leftBehind()
	if len(strays) == 0 {
		return
	}
	roots := make([]string, len(strays))
	for i, item := range strays { // without the lock, as Leads verifies signatures
		roots[i], _ = c.signers[0].Leads(item)
	}
	c.mu.Lock()
	defer c.unlock()
	lost := 0
	for i, item := range strays {
		if e := c.entries[item.Identity.SPIFFEID.String()]; e != nil && e.item == item {
			lost += c.follow(e, roots[i])
		}
	}
	if lost > 0 {
		c.say(func() {
			c.cfg.Log.Warn("certificates no longer chain to their authority's roots, replacing them", "certificates", lost)
		})
	}
}

// leftBehind returns the certificates whose root is no longer served.
func (c *Set) leftBehind() (strays []*secret.Item) {
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
			strays = append(strays, e.item)
		}
	}
	return strays
}

// follow records the root that a certificate now chains to. It returns 1 if there is none.
func (c *Set) follow(e *entry, root string) int {
	if root != "" {
		item := *e.item
		item.RootFingerprint = root
		e.item = &item // same content, so no notification
		return 0
	}
	e.lose(c.now())
	c.schedule(e)
	return 1
}
