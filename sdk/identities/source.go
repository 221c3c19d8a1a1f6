package identities

import (
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// find returns the session of a caller that is still served.
func (c *Set) find(caller secret.Caller, name string) (*session, error) {
	s := c.sessions[caller.Session]
	switch {
	case c.sched.Closed():
		return nil, secret.ErrClosed
	case s == nil && caller.Session == 0:
		return nil, secret.Unknown(name) // the agent itself has no session here
	case s == nil:
		return nil, fmt.Errorf("%w: %w", secret.ErrEnded, ca.Errorf(ca.Canceled, "the stream has left"))
	case s.over != nil:
		return nil, fmt.Errorf("%w: %w", secret.ErrEnded, s.over)
	case s.caller != caller:
		return nil, secret.Unknown(name)
	}
	return s, nil
}

// Peek returns the certificate of the caller's identity, or a trust bundle open to all.
// Until the identity is known it returns [secret.ErrNotReady]; once the caller is no
// longer served, [secret.ErrEnded].
func (c *Set) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	item, err := c.peek(caller, name)
	if item != nil || err != nil {
		return item, err
	}
	return c.cfg.Manager.Peek(secret.Caller{}, name)
}

// peek returns nil and nil for a bundle that the caller may have.
func (c *Set) peek(caller secret.Caller, name string) (*secret.Item, error) {
	c.sched.Lock()
	defer c.sched.Unlock()
	s, err := c.find(caller, name)
	own := name == c.cfg.Certificate.Name
	switch {
	case err != nil:
		return nil, err
	case !own && !slices.Contains(c.cfg.Bundles, name):
		return nil, secret.Unknown(name)
	case s.entry.id == "":
		return nil, notReady(name)
	case !own:
		return nil, nil
	case !s.entry.Valid(c.sched.Now()):
		return nil, notReady(name)
	}
	return s.entry.Item, nil
}

// Watch calls notify after each change of what Peek returns to the caller.
func (c *Set) Watch(caller secret.Caller, name string, notify func(name string)) (stop func(), err error) {
	unwatch := func() {}
	if slices.Contains(c.cfg.Bundles, name) {
		if unwatch, err = c.cfg.Manager.Watch(secret.Caller{}, name, notify); err != nil {
			return nil, err
		}
	}
	c.sched.Lock()
	defer c.sched.Unlock()
	s, err := c.find(caller, name)
	switch {
	case errors.Is(err, secret.ErrEnded):
		return unwatch, nil // no more changes; Peek returns why
	case err != nil:
		unwatch()
		return nil, err
	}
	remove := s.watchers.Add(func() { notify(name) })
	return func() { unwatch(); remove() }, nil
}

// tellSessions notifies all watchers of an entry.
func (c *Set) tellSessions(e *entry) {
	for _, s := range e.sessions {
		c.tellSession(s)
	}
}

func (c *Set) tellSession(s *session) {
	for _, notify := range s.watchers.All() {
		c.sched.Say(notify)
	}
}
