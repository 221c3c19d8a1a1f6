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
	// spent: the rotation was brought forward for it, and there is nothing more to have.
	spent bool
	// doubt: there may be another, so that it is to be read again, whatever is known.
	doubt bool
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

// after is what is known after an attempt read the token and made the rotation, or no
// request at all.
func (c credential) after(a *attempt, now, renew time.Time) credential {
	if a.by != a.leaf.choices[0] {
		return credential{} // the next request is not that one's
	}
	next := read(a.bearer, now, renew)
	brought := a.last && a.chain != nil && !next.ends.After(c.ends)
	if brought || c.spent && next.ends.Equal(c.ends) {
		next.look, next.spent = time.Time{}, true
	}
	return next
}

// reloaded is what stays known where one authority may have taken another's place: the
// token is read again, and the request that it is for may wait.
func (c credential) reloaded(was, is *choice) credential {
	switch {
	case is.Token == nil:
		return credential{}
	case is.Name != was.Name:
		return credential{doubt: true}
	}
	c.doubt = true
	return c
}

// kicked is what stays known where the token may have changed: nobody would look for
// the successor of one that is spent.
func (c credential) kicked() credential {
	c.doubt = c.doubt || c.spent
	return c
}

// mustLook tells whether a later token is to be looked for.
func (c credential) mustLook(now time.Time) bool {
	return c.doubt || !c.look.IsZero() && !now.Before(c.look)
}

// later tells whether a token is good beyond the one that is known.
func (c credential) later(b ca.Bearer) bool {
	return c.doubt || b.Expiry.IsZero() || b.Expiry.After(c.ends)
}

// postpone takes an attempt that found a later token, so that no certificate was
// asked for.
func (l *leaf) postpone(a *attempt) {
	l.credential = l.credential.after(a, l.now(), l.renew)
	l.failure, l.pause, l.again = nil, pause{}, false
	l.retry.reset()
}
