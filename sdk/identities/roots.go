package identities

import (
	"slices"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// rootsHaveMoved has the certificates held against the roots as they now are.
func (c *Set) rootsHaveMoved() {
	c.mu.Lock()
	c.rootsMoved = true
	c.mu.Unlock()
	c.nudge()
}

// checkRoots looks for certificates that lead to no root any more. Nearly all are
// settled by the fingerprint of their root.
func (c *Set) checkRoots() {
	strays := c.leftBehind()
	if len(strays) == 0 {
		return
	}
	roots := make([]string, len(strays))
	for i, item := range strays { // with no lock held: signatures are verified
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

// leftBehind returns what is held under roots that are not served any more.
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

// follow takes what a certificate leads to now: another root, or none. It returns 1
// where it is lost.
func (c *Set) follow(e *entry, root string) int {
	if root != "" {
		item := *e.item
		item.RootFingerprint = root
		e.item = &item // the content is the same: nobody is told
		return 0
	}
	e.lose(c.now())
	c.schedule(e)
	return 1
}
