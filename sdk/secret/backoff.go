package secret

import "time"

// Backoff computes the wait after a failed attempt by the table of package ca, as a
// [Manager] does for its own secrets. It is for engines that schedule many identities
// themselves. The zero value is ready; it is not safe for concurrent use.
type Backoff struct{ retry retry }

// After returns the wait after err; again is false if waiting cannot help because an
// ability is missing. life is the remaining life of the held certificate, zero if none is
// held.
func (b *Backoff) After(err error, life time.Duration) (wait time.Duration, again bool) {
	wait = b.retry.after(err, life)
	return wait, wait != never
}

// Reset forgets all failures; call it when a possible cause has changed.
func (b *Backoff) Reset() { b.retry.reset() }

// NewFailure describes err for an operator: bounded, escaped, with a reason from a fixed
// list. The next attempt comes wait after now.
func NewFailure(err error, now time.Time, wait time.Duration) *Failure {
	return newFailure(err, now, wait)
}
