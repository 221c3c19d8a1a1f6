package secret

import (
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// Before a token ends, it is looked whether there is a later one: when a tenth of
	// its life is left, or two minutes. Who keeps exchanged tokens has a new one by then.
	endPart   = 10
	endMargin = 2 * time.Minute
)

// credential is what is known of the token for the next request, without the token.
// One that will have ended when the rotation is due is looked for a successor in
// time; where there is none, the rotation is brought forward, as later it could not
// be had.
type credential struct {
	ends time.Time // zero: not known
	look time.Time // when to look for a later one; zero: not at all
}

// read returns what a token's reading tells, for a rotation that is due at renew.
func read(b ca.Bearer, now, renew time.Time) credential {
	c := credential{ends: b.Expiry}
	left := b.Expiry.Sub(now)
	if b.Expiry.IsZero() || left < minLife || b.Expiry.After(renew) {
		return c
	}
	margin := min(left/endPart, endMargin)
	c.look = b.Expiry.Add(-margin - rand.N(margin/2+1)) // one token may be that of many secrets
	return c
}

// used is read after the rotation was made: where it was brought forward for a token
// that is still the last one, there is nothing more to have of that.
func (c credential) used(a *attempt, now, renew time.Time) credential {
	next := read(a.bearer, now, renew)
	if a.last && !next.ends.After(c.ends) {
		next.look = time.Time{}
	}
	return next
}

// mustLook tells whether a later token is to be looked for.
func (c credential) mustLook(now time.Time) bool { return !c.look.IsZero() && !now.Before(c.look) }

// later tells whether a token is good beyond the one that is known.
func (c credential) later(b ca.Bearer) bool { return b.Expiry.IsZero() || b.Expiry.After(c.ends) }

// postpone takes an attempt that found a later token, so that no certificate was
// asked for.
func (l *leaf) postpone(a *attempt) {
	l.credential = read(a.bearer, l.now(), l.renew)
	l.failure, l.pause, l.again = nil, pause{}, false
	l.retry.reset()
}
