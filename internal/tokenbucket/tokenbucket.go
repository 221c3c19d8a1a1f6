// Package tokenbucket counts what may happen so often: [Bucket.Wait] returns how long one more has
// to wait, [Bucket.Spend] takes it. The queue, the budgets and the limits of logs use it. It keeps
// no state of its own, and the caller passes the time.
package tokenbucket

import "time"

// Bucket is a token bucket. The zero value is full. It is not safe for concurrent use.
type Bucket struct {
	// Spent is how much of the burst is missing as of Last.
	Spent float64
	Last  time.Time
}

// Wait returns how long it takes until one more may be spent, zero if it may be now. The
// bucket holds burst and gains perSecond.
func (b *Bucket) Wait(now time.Time, perSecond, burst float64) time.Duration {
	b.Gain(now, perSecond)
	if over := b.Spent + 1 - burst; over > 1e-9 { // less is an error of rounding
		return time.Duration(over/perSecond*float64(time.Second)) + 1
	}
	return 0
}

// Spend takes one.
func (b *Bucket) Spend() { b.Spent++ }

// Refund gives one back.
func (b *Bucket) Refund() { b.Spent = max(0, b.Spent-1) }

// Full reports whether nothing is spent as of now.
func (b *Bucket) Full(now time.Time, perSecond float64) bool {
	b.Gain(now, perSecond)
	return b.Spent == 0
}

// Gain adds what the time since Last has brought. A clock that went back brings nothing.
func (b *Bucket) Gain(now time.Time, perSecond float64) {
	if passed := now.Sub(b.Last).Seconds(); passed > 0 && !b.Last.IsZero() {
		b.Spent = max(0, b.Spent-perSecond*passed)
	}
	b.Last = now
}
