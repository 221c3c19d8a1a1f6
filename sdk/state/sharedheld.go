package state

import (
	"context"
	"os"
	"time"
)

// is reports whether name is the file of the claim.
func (c *claim) is(sub *os.Root, name string) bool {
	mine, err := c.file.Stat()
	if err != nil {
		return false
	}
	there, err := sub.Lstat(name)
	return err == nil && os.SameFile(mine, there)
}

// keep counts until Release, or until the claim is lost.
func (c *claim) keep() {
	tick := time.NewTicker(keepClaim)
	defer tick.Stop()
	for {
		select {
		case <-c.over:
			return
		case <-tick.C:
		}
		if !c.Held() {
			return
		}
		began := time.Now()
		if c.beat() {
			c.mu.Lock()
			c.kept = began
			c.mu.Unlock()
		}
	}
}

// beat counts once, and reports whether that kept the claim.
func (c *claim) beat() bool {
	c.count++
	if c.write(c.count) != nil {
		return false
	}
	sub, err := c.store.subfolder(c.first, false)
	if err != nil {
		return false
	}
	defer func() { _ = sub.Close() }()
	if !c.is(sub, c.first) {
		c.mu.Lock()
		c.lost = true
		c.mu.Unlock()
		return false
	}
	return true
}

// Held implements [secret.Claim].
func (c *claim) Held() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The wall clock counts while a machine is suspended, the monotonic one may not.
	now := time.Now()
	c.lost = c.lost || now.Sub(c.kept) >= lostAfter || now.Round(0).Sub(c.kept.Round(0)) >= lostAfter
	return !c.lost
}

// Made implements [secret.Claim], by the clock of the file server.
func (c *claim) Made() time.Time { return c.made }

// Release implements [secret.Claim]. A claim that is not held is left to its successor.
func (c *claim) Release(context.Context) error {
	held := c.Held()
	close(c.over)
	defer c.drop()
	if !held {
		return nil
	}
	sub, err := c.store.subfolder(c.first, false)
	if err != nil {
		return c.store.away(err)
	}
	defer func() { _ = sub.Close() }()
	if !c.is(sub, c.first) {
		return nil
	}
	return c.store.away(sub.Remove(c.first))
}
