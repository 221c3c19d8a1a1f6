package secret

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// longestWait bounds every wait, whatever an authority says.
	longestWait = 10 * time.Minute
	// shortestCap keeps the waits near a certificate's end from becoming a hammer.
	shortestCap = time.Second
	// longestBare bounds the engine's own waits while nothing is held: whoever needs
	// the secret is standing still.
	longestBare = 10 * time.Second
	never       = time.Duration(-1)
)

// retry says how long to wait after an error, by the table of package ca. The
// zero value is ready.
type retry struct {
	soon, late *backoff.ExponentialBackOff
}

// after returns the wait after err; never means until something changes. left is
// the remaining life of what is held, zero where nothing is.
func (r *retry) after(err error, left time.Duration) time.Duration {
	switch ca.ActionFor(err) {
	case ca.EndAttempt, ca.RefreshToken: // the token was read again already
		return r.nextLate()
	case ca.Missing:
		return never
	}
	// Drop, too: the engine itself did not go away, or nobody would ask for the wait.
	return r.wait(ca.RetryAfter(err), left)
}

// wait is the backoff, or longer if the authority says so, but not so long that
// what is held may end meanwhile.
func (r *retry) wait(asked, left time.Duration) time.Duration {
	if asked > 0 { // so that all who were told the same do not come at once
		asked = min(asked, longestWait)
		asked += rand.N(asked/10 + 1)
	}
	limit := longestWait
	if left > 0 {
		limit = min(limit, max(left/10, shortestCap))
	}
	own := r.nextSoon()
	if left <= 0 {
		own = min(own, longestBare+rand.N(longestBare/4))
	}
	return min(max(asked, own), limit)
}

func (r *retry) nextSoon() time.Duration {
	if r.soon == nil {
		r.soon = &backoff.ExponentialBackOff{
			InitialInterval: time.Second, Multiplier: 2, MaxInterval: time.Minute, RandomizationFactor: 0.25,
		}
	}
	return r.soon.NextBackOff()
}

func (r *retry) nextLate() time.Duration {
	if r.late == nil {
		r.late = &backoff.ExponentialBackOff{
			InitialInterval: time.Minute, Multiplier: 2, MaxInterval: longestWait, RandomizationFactor: 0.1,
		}
	}
	return min(r.late.NextBackOff(), longestWait)
}

// reset forgets the failures.
func (r *retry) reset() { *r = retry{} }
