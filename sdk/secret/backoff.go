package secret

import "time"

// Backoff says how long to wait after a failed attempt, by the table of package ca,
// as a [Manager] does for its own secrets: for an engine that keeps the time of many
// identities itself. The zero value is ready; one goroutine uses it at a time.
type Backoff struct{ retry retry }

// After returns the wait after err; false means that waiting helps nothing, as an
// ability is missing. life is the time that what is held has left, zero where nothing
// is held.
func (b *Backoff) After(err error, life time.Duration) (wait time.Duration, again bool) {
	wait = b.retry.after(err, life)
	return wait, wait != never
}

// Reset forgets the failures: something that may have been their cause has changed.
func (b *Backoff) Reset() { b.retry.reset() }

// NewFailure describes err for an operator: bounded, escaped, with a fixed word for
// its reason. The next attempt comes after wait.
func NewFailure(err error, now time.Time, wait time.Duration) *Failure {
	return newFailure(err, now, wait)
}
