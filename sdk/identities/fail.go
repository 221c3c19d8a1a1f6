package identities

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// fail records the error and schedules the next attempt. The held certificate stays.
func (c *Set) fail(f *flight, now time.Time) {
	e := f.entry
	if e.failure == nil {
		e.failure = &failure{}
	}
	t, at := e.failure, rotation.Now(now)
	wait := e.Rotation.Failed(at, f.err)
	t.order = nil
	if f.order != nil && f.order.Again(f.err) {
		t.order = f.order
	}
	t.until = at.Mono.Add(refusalKept)
	if refuses(f.err) && c.without(f, now) {
		wait = 0
		e.Rotation.RetryIn(at, 0)
	}
	t.failure = secret.NewFailure(f.err, now, wait)
	event, what := t.failure.Event(), "the authority has not decided on a request yet"
	if event.Kind == secret.Failed {
		what = "cannot renew certificate"
		c.counts.Failures++
	}
	c.tell(event)
	c.sched.Complain(what, f.err, "identity", e.id, "asked", e.asked.String(), "next_try", t.failure.NextTry)
	if !c.tidy(e) {
		c.sched.Schedule(e)
	}
}

// refuses reports whether err is the authority's refusal of the caller.
func refuses(err error) bool {
	switch ca.ReasonFor(err) {
	case ca.Unauthenticated, ca.Denied, ca.Invalid:
		return true
	}
	return false
}

// without handles a refused request, with a token or without one. It reports whether another can be
// tried at once.
func (c *Set) without(f *flight, now time.Time) bool {
	e, cred := f.entry, f.credential
	switch {
	case e.id == "":
		c.refuse(f)
		return false
	case cred != nil && ca.ReasonFor(f.err) != ca.Unauthenticated:
		return false
	case cred != nil && cred.expiry.IsZero(): // it may have expired
		cred.owner = ""
		for _, s := range slices.Clone(e.sessions) {
			if s.credential == cred {
				c.end(s, errOver)
			}
		}
	default:
		*e.doubt(cred) = now
	}
	return slices.ContainsFunc(e.sessions, func(s *session) bool { return e.doubt(s.credential).IsZero() })
}

// refuse ends the streams of an unverified token that the authority refuses. The streams
// do not learn the authority's message; it is for the operator.
func (c *Set) refuse(f *flight) {
	t := f.entry.failure
	if t.refused == nil {
		t.by = f.by
		c.strangers.addRefused(t.by, 1)
	}
	t.refused = ca.Errorf(ca.ReasonFor(f.err), "the authority does not sign for the token of this stream")
	c.counts.Refused++
	for _, s := range slices.Clone(f.entry.sessions) {
		c.end(s, t.refused)
	}
}
