package rootphase

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
)

// coarse and steps bound by how much later than it is an end is recorded, so that not each
// certificate changes the record.
const (
	coarse = 5 * time.Minute
	steps  = 8 // of a certificate's life
)

// end is when the last of some certificates ends.
type end struct {
	at   time.Time
	kept time.Time // the same as recorded, or somewhat later
}

// endOf returns a recorded end.
func endOf(kept time.Time) end { return end{kept, kept} }

// reach takes a certificate that was given out. It reports whether that changes the record.
func (e *end) reach(ends, now time.Time) (changed bool) {
	e.at = clock.Later(e.at, ends)
	if !ends.After(e.kept) {
		return false
	}
	e.kept = ends.Add(max(0, min(coarse, ends.Sub(now)/steps))).Truncate(time.Second).Add(time.Second)
	return true
}

// raise takes a recorded end of others.
func (e *end) raise(kept time.Time) {
	if kept.After(e.kept) {
		*e = endOf(kept)
	}
}
