package secret

import (
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// The margin before a token expires at which to look for a later one: a tenth of its
	// remaining life, at most two minutes. A cache of exchanged tokens has a new one by
	// then.
	endPart   = 10
	endMargin = 2 * time.Minute
	// leastLeft is the least life of a token that is worth looking for its successor.
	leastLeft = time.Second
)

// credential is what the leaf knows about the token for its next request, without the
// token itself. If the token expires before the rotation is due, the leaf looks for a
// later one in time; if there is none, it renews early, while the token still works.
type credential struct {
	ends time.Time // zero: unknown
	look time.Time // when to look for a later token; zero: never
	// spent: the rotation was brought forward for this token, and no later token exists.
	spent bool
	// doubt: the token may have changed, so read it again in any case.
	doubt bool
}

// read returns the credential for b and a rotation due at renew.
func read(b ca.Bearer, now, renew time.Time) credential {
	c := credential{ends: b.Expiry}
	left := b.Expiry.Sub(now)
	if b.Expiry.IsZero() || left < leastLeft || b.Expiry.After(renew) {
		return c
	}
	margin := min(left/endPart, endMargin)
	c.look = b.Expiry.Add(-margin - rand.N(margin/2+1)) // many secrets may share one token
	return c
}

// after returns the credential after attempt a read the token and either rotated the
// certificate or sent no request. first is the authority that the next request asks.
func (c credential) after(a *attempt, first *authority, now, renew time.Time) credential {
	if a.by != first {
		return credential{} // the next request asks another authority
	}
	next := read(a.bearer, now, renew)
	brought := a.onlyLast && a.chain != nil && !next.ends.After(c.ends)
	if brought || c.spent && next.ends.Equal(c.ends) {
		next.look, next.spent = time.Time{}, true
	}
	return next
}

// reloaded returns the credential after a reload, in which another authority may have
// taken over: the token is read again, but no request is due for that.
func (c credential) reloaded(was, is *authority) credential {
	switch {
	case is.settings().Token == nil:
		return credential{}
	case is != was:
		return credential{doubt: true}
	}
	c.doubt = true
	return c
}

// kicked returns the credential after the token may have changed. A spent one is read
// again, as nothing else looks for its successor.
func (c credential) kicked() credential {
	c.doubt = c.doubt || c.spent
	return c
}

// moved returns the credential after the renewal has moved: to a later one, the token may not
// last.
func (c credential) moved(now, renew time.Time) credential {
	if c.look.IsZero() && !c.spent && !c.doubt {
		c.look = read(ca.Bearer{Expiry: c.ends}, now, renew).look
	}
	return c
}

// lookForToken brings the rotation forward to the time at which to look for a later token.
func (l *leaf) lookForToken() {
	if l.credential.doubt {
		l.rotation.BringForward(l.now())
		return
	}
	l.rotation.BringForward(l.credential.look)
}

// later reports whether b outlives the previous token.
func (c credential) later(b ca.Bearer) bool {
	return c.doubt || b.Expiry.IsZero() || b.Expiry.After(c.ends)
}

// postpone settles an attempt that found a later token and so requested no certificate.
func (l *leaf) postpone(a *attempt) {
	l.rotation.Postponed()
	held, _ := l.rotation.Held()
	l.credential = l.credential.after(a, l.authorities[0], l.now(), held.Renew)
	l.failure = nil
	l.lookForToken()
}
