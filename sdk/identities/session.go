package identities

import (
	"errors"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// session is one stream, bound to the credential it opened with.
type session struct {
	caller     secret.Caller
	credential *credential // nil if the stream was identified by its peer
	unbounded  bool        // not counted by Limits.Streams
	entry      *entry
	over       error // why it is no longer served
	watchers   watchers.Set[func()]
}

func limited(what string, most int) error {
	return ca.Errorf(ca.RateLimited, "the limit of %s is reached: %d", what, most)
}

// turnAway counts a rejected stream.
func (c *Set) turnAway(err error) error {
	c.counts.TurnedAway++
	if errors.Is(err, ca.ErrRateLimited) {
		c.counts.OverLimit++
	}
	c.sched.Complain("a stream is turned away", err)
	return err
}

// turnAwayFor counts a stream whose token could not be verified. The details are for the
// operator; the client learns no more than it needs.
func (c *Set) turnAwayFor(err error) error {
	c.sched.Lock()
	defer c.sched.Unlock()
	_ = c.turnAway(err)
	switch reason := ca.ReasonFor(err); reason {
	case ca.Unauthenticated, ca.Denied, ca.Invalid:
		return ca.Errorf(reason, "the token of this stream is not accepted")
	case ca.RateLimited:
		return err
	}
	return ca.Errorf(ca.Unavailable, "the token of this stream cannot be verified at the moment")
}

// Leave removes a stream that Join admitted.
func (c *Set) Leave(caller secret.Caller) {
	c.sched.Lock()
	defer c.sched.Unlock()
	s := c.sessions[caller.Session]
	if s == nil {
		return
	}
	delete(c.sessions, caller.Session)
	c.detach(s)
}

// detach separates a session from its entry and its token.
func (c *Set) detach(s *session) {
	e := s.entry
	if e == nil {
		return
	}
	e.drop(s, c.sched.Now())
	s.entry = nil
	if cred := s.credential; cred != nil {
		if cred.sessions--; cred.sessions == 0 {
			cred.token = ""
		}
	}
	if !c.tidy(e) {
		c.sched.Schedule(e)
	}
}

// tidy removes an unverified entry without sessions. A refused one is kept for its pause,
// so that the same token is not retried at once.
func (c *Set) tidy(e *entry) bool {
	if e.id != "" || len(e.sessions) > 0 || e.Rotation.Asking() || e.remembered(rotation.Now(c.sched.Now())) > 0 {
		return false
	}
	c.sched.Remove(e)
	return true
}

// end ends a session; its stream learns why from Peek.
func (c *Set) end(s *session, why error) {
	if s.over != nil {
		return
	}
	s.over = why
	c.counts.Ended++
	c.tellSession(s)
	c.detach(s)
}
