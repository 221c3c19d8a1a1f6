package schedule

import (
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/tokenbucket"
)

const (
	// lower is what remains of the rate after a refusal, and sooner after one that follows
	// at once, as the rate is far too high then.
	lower  = 0.9
	sooner = 0.7
	// raise is what the rate gains in a second once it is back where it was refused.
	raise = 0.01
	// A refusal costs the pause that the authority asks for. The rate takes so many times
	// that to climb back, 10 seconds at least, or most of the time would be pauses.
	climb    = 20
	minClimb = 10 * time.Second
	maxClimb = 30 * time.Minute
	// lowest is the part of the configured rate that is always tried.
	lowest = 0.01
	// longest bounds how far an authority's own word counts.
	longest = 10 * time.Minute
)

// rate is the budget of one authority: what is configured, of that the share that is ours, and
// less while the authority refuses more.
type rate struct {
	full   Limits
	share  float64 // of full
	part   float64 // of our share, at present
	bucket tokenbucket.Bucket

	raised  time.Time // until when part is computed
	lowered time.Time
	climbs  time.Time // until when it climbs slowly
	doubt   time.Time // until when a refusal means that it is far too high
	slow    float64   // what it gains in a second then
}

func newRate(l Limits) rate { return rate{full: l, share: 1, part: 1} }

// allowed is in calls a second.
func (r *rate) allowed() float64 { return r.full.Rate * r.share * r.part }

// burst is one at least, or no call could begin.
func (r *rate) burst() float64 { return max(min(1, r.full.Burst), r.full.Burst*r.share) }

func (r *rate) wait(now time.Time) time.Duration {
	if now.After(r.raised) {
		if !r.raised.IsZero() {
			r.gain(now)
		}
		r.raised = now
	}
	if r.allowed() <= 0 {
		return longest
	}
	return r.bucket.Wait(now, r.allowed(), r.burst())
}

// divide changes the share. What was saved for a burst does not grow with it, as it may be
// another's that was used, and without a share nothing is saved.
func (r *rate) divide(share float64, now time.Time) {
	if share == r.share {
		return
	}
	r.bucket.Gain(now, r.allowed())
	saved := r.burst() - r.bucket.Spent
	if r.share = share; share == 0 {
		saved = 0
	}
	r.bucket.Spent = max(0, r.burst()-saved)
}

// gain raises the rate for the time since it was computed.
func (r *rate) gain(now time.Time) {
	by := raise
	if now.Before(r.climbs) {
		by = r.slow
	}
	passed := min(now.Sub(r.raised).Seconds(), 60) // a long rest proves nothing
	r.part = min(1, r.part*(1+by*passed))
}

// limited lowers the rate, once for all calls that were in flight together. It gains nothing
// during the pause that the authority asked for.
func (r *rate) limited(began, now time.Time, pause time.Duration) {
	r.bucket.Spent = max(r.bucket.Spent, r.burst()) // no burst after a refusal
	if began.Before(r.lowered) {
		return
	}
	part := lower
	if now.Before(r.doubt) {
		part = sooner
	}
	climbing := min(max(climb*pause, minClimb), maxClimb)
	r.part = max(r.part*part, lowest)
	r.lowered, r.raised = now, now.Add(pause)
	r.climbs, r.slow = r.raised.Add(climbing), (1/lower-1)/climbing.Seconds()
	r.doubt = r.raised.Add(climbing / 8)
}

// told returns how long to pause when the authority said wait: that and a little more, as
// others may have been told the same. It returns zero for no word.
func told(wait time.Duration) time.Duration {
	wait = min(max(wait, 0), longest)
	if wait == 0 {
		return 0
	}
	return wait + time.Duration(rand.Int64N(int64(wait/10)+1))
}
