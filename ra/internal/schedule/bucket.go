package schedule

import "time"

// Bucket is a token bucket. The zero value is full. It is not safe for concurrent use.
type Bucket struct {
	spent float64
	last  time.Time
}

// Wait returns how long it takes until one more may be spent, zero if it may be now. The
// bucket holds burst and gains perSecond.
func (b *Bucket) Wait(now time.Time, perSecond, burst float64) time.Duration {
	b.gain(now, perSecond)
	if over := b.spent + 1 - burst; over > 1e-9 { // less is an error of rounding
		return time.Duration(over/perSecond*float64(time.Second)) + 1
	}
	return 0
}

// Spend takes one.
func (b *Bucket) Spend() { b.spent++ }

// Refund gives one back.
func (b *Bucket) Refund() { b.spent = max(0, b.spent-1) }

// Full reports whether nothing is spent as of now.
func (b *Bucket) Full(now time.Time, perSecond float64) bool {
	b.gain(now, perSecond)
	return b.spent == 0
}

func (b *Bucket) gain(now time.Time, perSecond float64) {
	if passed := now.Sub(b.last).Seconds(); passed > 0 && !b.last.IsZero() {
		b.spent = max(0, b.spent-perSecond*passed)
	}
	b.last = now
}
