package rotation

import (
	"math/rand/v2"
	"time"
)

const (
	century = 100 * 365 * 24 * time.Hour
	// minLife limits requests to an authority whose certificates live only for moments.
	minLife = time.Second
)

// Time is a moment by both clocks. The monotonic clock stops while the machine is suspended,
// and the wall clock may be set.
type Time struct{ Wall, Mono time.Time }

// Now returns the moment now; wall is the wall clock.
func Now(wall time.Time) Time { return Time{wall, time.Now()} }

// Term is the life of one certificate by the wall clock. The zero Term means no certificate.
type Term struct{ Begins, Renew, Ends time.Time }

func (t Term) none() bool { return t.Ends.IsZero() }

// Renewal draws the time at which to renew a certificate that is served from begins to
// ends: when ratio ± jitter of that life is left. Draw once for each certificate: drawing
// again at every look would bunch renewals at the early edge of the jitter.
func Renewal(ratio, jitter float64, begins, ends time.Time) time.Time {
	ratio += jitter * (2*rand.Float64() - 1)
	life := min(ends.Sub(begins), century) // that of a certificate without an end overflows
	wait := time.Duration(float64(life) * (1 - max(0, min(1, ratio))))
	return begins.Add(max(wait, minLife))
}
