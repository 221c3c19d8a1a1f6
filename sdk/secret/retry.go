package secret

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// longestWait bounds every wait, whatever an authority asks for.
	longestWait = 10 * time.Minute
	// shortestCap keeps retries near a certificate's end from hammering the authority.
	shortestCap = time.Second
	// longestBare bounds the engine's own waits while nothing is held, as the workload
	// stands still until it has the secret.
	longestBare = 10 * time.Second
	never       = time.Duration(-1)
)

// retry computes the wait after an error by the table of package ca. The zero value is
// ready.
type retry struct {
	soon, late *backoff.ExponentialBackOff
}

// after returns the wait after err, or never if only a change can help. left is the
// remaining life of the held certificate, zero if none is held.
func (r *retry) after(err error, left time.Duration) time.Duration {
	switch ca.ActionFor(err) {
	case ca.EndAttempt, ca.RefreshToken: // the attempt has already read the token again
		return r.nextLate()
	case ca.Missing:
		return never
	}
	// This includes Drop: it was not the engine that went away, as it asks for the wait.
	return r.wait(ca.RetryAfter(err), left)
}

// wait returns the backoff, or the authority's own wait if longer, but never so much that
// the held certificate could expire meanwhile.
func (r *retry) wait(asked, left time.Duration) time.Duration {
	if asked > 0 { // jitter, as many agents may have been told the same
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
