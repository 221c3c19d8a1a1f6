package identities

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// longestWait is the pause after which what is missing is looked for again.
const longestWait = 10 * time.Minute

// fail notes the error and sets the time of the next attempt. Whatever happened, what
// is held stays.
func (c *Set) fail(f *flight, now time.Time) {
	e := f.entry
	if e.trouble == nil {
		e.trouble = &trouble{}
	}
	t := e.trouble
	wait, again := t.backoff.After(f.err, e.life(now))
	if !again {
		wait = longestWait
	}
	t.order = nil
	if f.order != nil && f.order.Again(f.err) {
		t.order = f.order
	}
	t.until = time.Now().Add(wait)
	if refuses(f.err) && c.without(f) {
		wait, t.until = 0, time.Time{}
	}
	t.failure = secret.NewFailure(f.err, now, wait)
	c.counts.Failures++
	c.tell(secret.Event{Type: secret.Failed, Reason: t.failure.Reason, Failure: t.failure})
	c.complain("cannot renew certificate", f.err, "identity", e.id, "asked", e.asked.String(), "next_try", t.failure.NextTry)
	if !c.tidy(e) {
		c.schedule(e)
	}
}

// refuses tells whether an error is the authority's no to who asks.
func refuses(err error) bool {
	switch ca.ReasonFor(err) {
	case ca.Unauthenticated, ca.Denied, ca.Invalid:
		return true
	}
	return false
}

// without goes on after the authority said no to a token, and tells whether there is
// another one to ask with at once.
func (c *Set) without(f *flight) bool {
	e, cred := f.entry, f.credential
	switch {
	case e.id == "":
		c.refuse(f)
		return false
	case cred == nil || ca.ReasonFor(f.err) != ca.Unauthenticated:
		return false
	case cred.expiry.IsZero(): // it may have expired, then
		cred.owner = ""
		for _, s := range slices.Clone(e.sessions) {
			if s.credential == cred {
				c.end(s, errOver)
			}
		}
	default:
		cred.doubted = true
	}
	return slices.ContainsFunc(e.sessions, func(s *session) bool { return s.credential != nil && !s.credential.doubted })
}

// refuse ends the streams of a token that nobody vouched for, and that the authority
// does not sign for. What it said is the operator's to know.
func (c *Set) refuse(f *flight) {
	t := f.entry.trouble
	if t.refused == nil {
		t.by = f.by
		c.strangers[t.by]++
	}
	t.refused = ca.Errorf(ca.ReasonFor(f.err), "the authority does not sign for the token of this stream")
	c.counts.Refused++
	for _, s := range slices.Clone(f.entry.sessions) {
		c.end(s, t.refused)
	}
}
