package rotation

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// usualAsk is when an authority is asked again by default; soonestAsk and latestAsk bound
	// its Retry-After (RFC 9773, section 4.3.1).
	usualAsk   = 6 * time.Hour
	soonestAsk = time.Minute
	latestAsk  = 24 * time.Hour
	// firstAgain is the wait after a question that failed. It doubles up to usualAsk.
	firstAgain = 10 * time.Minute
	// rush spreads renewals that are due at once, as a whole fleet may have got the same advice. overdue
	// does if the window is over: so a CA shows that it has revoked the certificate (RFC 9773, section
	// 4.1), and within a minute there should be another one.
	rush    = 5 * time.Minute
	overdue = 45 * time.Second
	// A renewal by advice comes when a tenth of the life is over at the earliest, and when a
	// tenth is left at the latest: an authority whose windows are always in the past costs
	// ten certificates in a life, and none makes one expire.
	lifeParts = 10
)

// advice is the authority's advice on the held certificate.
type advice struct {
	asking     bool
	pause      Pause     // until the next question
	since      time.Time // when the certificate was first served
	start, end time.Time // the window that the renewal was drawn from
	failures   uint8     // in a row
}

// Advisable records that the authority of the held certificate gives advice on it, or, with a
// zero since, that it does not. since is when the certificate was first served. Call it
// after each install or Hold; an answer on an earlier certificate is the owner's to drop.
func (m *Machine) Advisable(now Time, since time.Time) {
	m.advice = nil
	if since.IsZero() || m.held.none() {
		return
	}
	first := min(soonestAsk, m.Left(now.Wall)/(2*lifeParts))
	m.advice = &advice{since: since, pause: NewPause(part(first, 1), now)}
}

// consultable reports whether to ask for advice at some time before the renewal.
func (m *Machine) consultable(now Time) bool {
	return m.advice != nil && !m.advice.asking && m.wanted && !m.asking && m.next == nil &&
		!m.held.none() && now.Wall.Before(m.held.Renew)
}

// Consult records that a question is in flight.
func (m *Machine) Consult() { m.advice.asking = true }

// Consulting reports whether a question is in flight. Advisable and Hold forget it.
func (m *Machine) Consulting() bool { return m.advice != nil && m.advice.asking }

// Advised settles a question. It draws the renewal from the window, once for each window, and
// returns it; moved reports whether it has changed. What is due already stays due.
func (m *Machine) Advised(now Time, info ca.RenewalInfo) (renew time.Time, moved bool) {
	a := m.advice
	wait := min(max(cmp.Or(info.RetryAfter, usualAsk), soonestAsk), latestAsk)
	a.asking, a.failures, a.pause = false, 0, NewPause(wait+part(wait, 0.1), now)
	known := a.start.Equal(info.Start) && a.end.Equal(info.End)
	a.start, a.end = info.Start, info.End
	if known || !now.Wall.Before(m.held.Renew) {
		return m.held.Renew, false
	}
	before := m.held.Renew
	m.held.Renew = a.draw(now.Wall, m.held)
	return m.held.Renew, !m.held.Renew.Equal(before)
}

// draw returns a moment in the window, kept within the life of a certificate.
func (a *advice) draw(now time.Time, held Term) time.Time {
	moment := a.start.Add(rand.N(max(1, a.end.Sub(a.start))))
	tenth := held.Ends.Sub(a.since) / lifeParts
	if soonest := clock.Later(now, a.since.Add(tenth)); moment.Before(soonest) {
		spread := rush
		if a.end.Before(now) && !soonest.After(now) {
			spread = overdue
		}
		at := soonest.Add(part(max(0, min(spread, held.Ends.Sub(now)/lifeParts)), 1))
		return clock.Earlier(at, held.Renew) // a repeated "now" puts nothing off
	}
	return clock.Earlier(moment, held.Ends.Add(-tenth))
}

// Unadvised settles a question that failed: the renewal stays as it is.
func (m *Machine) Unadvised(now Time, err error) {
	a := m.advice
	a.asking = false
	if ca.ActionFor(err) == ca.Missing {
		a.pause = NewPause(Never, now)
		return
	}
	wait := ca.RetryAfter(err)
	if wait <= 0 {
		wait = min(firstAgain<<a.failures, usualAsk)
	}
	a.failures = min(a.failures+1, 8)
	wait = min(max(wait, soonestAsk), latestAsk)
	a.pause = NewPause(wait+part(wait, 0.1), now)
}
