package pluginhost

import (
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
)

// The waits after an end, and those of an open circuit.
var (
	restarts = rotation.Row{First: 100 * time.Millisecond, Most: 30 * time.Second}
	probes   = rotation.Row{First: 30 * time.Second, Most: 5 * time.Minute}
)

// When to restart a provider that ended.
const (
	healthyAfter = time.Minute // ready for so long, earlier crashes are forgotten

	crashLimit  = 5 // crashes within crashWindow open the circuit
	crashWindow = 2 * time.Minute
	provenBy    = 10 // signatures: a life with so many is not part of a crash loop

	leastGap    = time.Second      // between two starts for what is due
	bareGap     = 10 * time.Second // the same while nothing is held and the last life signed nothing,
	bareLimit   = 10 * time.Minute // and after so long
	lateBareGap = 10 * bareGap
)

// recovery decides how long to wait before a restart. The supervisor owns it.
type recovery struct {
	backoff rotation.Waits
	probe   rotation.Waits
	probing bool        // the next life is a probe: the circuit was open
	signs   bool        // the last life signed
	crashes []time.Time // those in crashWindow
	since   time.Time   // of the first crash that is not forgotten
}

// refusals decides when settings that were refused are tried again.
type refusals struct {
	waits rotation.Waits
	since time.Time // of the first
}

// wait returns the wait after err, by what left has due. With nothing due there is no hurry.
func (r *refusals) wait(err error, left func(time.Time) (time.Duration, bool)) time.Duration {
	now := time.Now()
	if r.since.IsZero() {
		r.since = now
	}
	ends, due := left(now)
	if !due {
		ends = 24 * time.Hour
	}
	return r.waits.After(err, now, max(0, ends), now.Sub(r.since))
}

// record is what a life did before it ended.
type record struct {
	ready  time.Duration // for how long
	signed int32         // certificates and tokens
}

// next returns how long to wait after a life that ended at now, and whether the circuit
// is open until then.
func (r *recovery) next(now time.Time, l record) (wait time.Duration, open bool) {
	if l.ready >= healthyAfter || l.signed >= provenBy {
		*r = recovery{}
	}
	if r.signs = l.signed > 0; r.signs { // ends the circuit, and forgets no crash
		r.probing = false
		r.probe.Reset()
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
	if r.probing || len(r.crashes) >= crashLimit {
		r.probing = true
		return r.probe.Next(probes), true
	}
	return r.backoff.Next(restarts), false
}

// gap returns how long after the last start the next may be for what is due at now, and ends in
// left; zero or less: nothing is held.
func (r *recovery) gap(now time.Time, left time.Duration) time.Duration {
	least := max(leastGap, left/10)
	if left <= 0 && !r.signs { // else the next life may well sign, too
		least = bareGap
		if now.Sub(r.since) >= bareLimit {
			least = lateBareGap
		}
	}
	return least + rand.N(least/4) // or each start meets what ended the last one
}
