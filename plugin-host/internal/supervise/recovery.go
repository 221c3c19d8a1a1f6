package supervise

import (
	"math/rand/v2"
	"time"
)

// When to restart a provider that ended.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	healthyAfter = time.Minute // ready for so long, earlier crashes are forgotten

	crashLimit  = 5 // crashes within crashWindow open the circuit
	crashWindow = 2 * time.Minute
	firstProbe  = 30 * time.Second
	maxProbe    = 5 * time.Minute

	leastGap    = time.Second      // between two starts for a certificate that is due
	bareGap     = 10 * time.Second // the same while none is held,
	bareLimit   = 10 * time.Minute // and after so long
	lateBareGap = 10 * bareGap
)

// recovery decides how long to wait before a restart. The supervisor owns it.
type recovery struct {
	backoff time.Duration // the last one
	probe   time.Duration // the last wait of an open circuit; 0: it was not open
	crashes []time.Time   // those in crashWindow
	since   time.Time     // of the first crash that is not forgotten
}

// record is what a life did before it ended.
type record struct {
	ready  time.Duration // for how long
	signed bool          // a certificate
}

// next returns how long to wait after a life that ended at now, and whether the circuit
// is open until then.
func (r *recovery) next(now time.Time, l record) (wait time.Duration, open bool) {
	if l.ready >= healthyAfter {
		*r = recovery{}
	}
	if l.signed { // ends the circuit, and forgets no crash
		r.probe = 0
	}
	if r.since.IsZero() {
		r.since = now
	}
	r.crashes = append(r.crashes, now)
	for now.Sub(r.crashes[0]) > crashWindow {
		r.crashes = r.crashes[1:]
	}
	// After an open circuit the next life is a probe: one crash opens the circuit again,
	// unless it was healthy for a minute.
	if r.probe > 0 || len(r.crashes) >= crashLimit {
		r.probe = double(r.probe, firstProbe, maxProbe)
		return r.probe, true
	}
	r.backoff = double(r.backoff, firstBackoff, maxBackoff)
	return jitter(r.backoff), false
}

// gap returns how long after the last start the next may be for a certificate that is due
// at now and ends in left; zero or less: none is held.
func (r *recovery) gap(now time.Time, left time.Duration) time.Duration {
	least := max(leastGap, left/10)
	if left <= 0 {
		least = bareGap
		if now.Sub(r.since) >= bareLimit {
			least = lateBareGap
		}
	}
	return least + rand.N(least/4) // or each start meets what ended the last one
}

func double(last, first, most time.Duration) time.Duration {
	return min(max(first, 2*last), most)
}

// jitter returns between d/2 and d, so that many agents do not restart at once.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
