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
		e.failure = &failure{first: f.number, by: f.by}
	}
	t, at := e.failure, rotation.Now(now)
	wait := e.Rotation.Failed(at, f.err)
	t.order = nil
	if f.order != nil && f.order.Again(f.err) {
		t.order = f.order
	}
	t.until = at.Mono.Add(refusalKept)
	c.countFailing(e, f.err)
	if t.token = f.unsent || refuses(f.err); t.token && c.without(f) {
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

// countFailing counts an unverified token for its process that is neither refused nor verified. While the
// authority decides, which may take a person hours, it does not count.
func (c *Set) countFailing(e *entry, err error) {
	t := e.failure
	if e.id != "" || t.failing || t.refused != nil || refuses(err) || ca.ReasonFor(err) == ca.Pending {
		return
	}
	t.failing = true
	c.strangers.failing.change(t.by, 1)
}

// refuses reports whether err is the authority's refusal of the caller.
func refuses(err error) bool {
	switch ca.ReasonFor(err) {
	case ca.Unauthenticated, ca.Denied, ca.Invalid:
		return true
	}
	return false
}

// without handles a request that failed for its token, or for want of one. It reports whether to ask with
// another session at once, each once for the failures in a row. Not so where the authority takes the
// token and denies the request: others are most likely denied, too.
func (c *Set) without(f *flight) bool {
	e, cred, rejected := f.entry, f.credential, ca.ReasonFor(f.err) == ca.Unauthenticated
	switch {
	case e.id == "":
		if refuses(f.err) {
			c.refuse(f)
		}
		return false
	case cred != nil && rejected && cred.expiry.IsZero(): // it may have expired
		cred.owner = ""
		for _, s := range slices.Clone(e.sessions) {
			if s.credential == cred {
				c.end(s, errOver)
			}
		}
	default:
		e.uses(cred).doubted = f.number
	}
	return (rejected || cred == nil && refuses(f.err)) && slices.ContainsFunc(e.sessions, e.untried) && c.early(e.failure)
}

// early reports whether a request may be made without the pause, with a credential that was not tried:
// as many as a process may have refused, as tokens may be cheap to get.
func (c *Set) early(t *failure) bool {
	most, now := float64(c.cfg.Limits.Refused), time.Now()
	if t.early.Wait(now, most/refusalKept.Seconds(), most) > 0 {
		return false
	}
	t.early.Spend()
	return true
}

// refuse ends the streams of an unverified token that the authority refuses. The streams
// do not learn the authority's message; it is for the operator.
func (c *Set) refuse(f *flight) {
	t := f.entry.failure
	if t.refused == nil {
		if t.failing {
			t.failing = false
			c.strangers.failing.change(t.by, -1)
		}
		c.strangers.addRefused(t.by, 1)
	}
	t.refused = ca.Errorf(ca.ReasonFor(f.err), "the authority does not sign for the token of this stream")
	c.counts.Refused++
	for _, s := range slices.Clone(f.entry.sessions) {
		c.end(s, t.refused)
	}
}
