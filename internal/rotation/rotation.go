// Package rotation decides when a certificate is requested, served, reported as expired and
// replaced. A [Machine] stands for one certificate: its owner passes it events and the time,
// and [Machine.Step] answers with what to do. It has no clock, no goroutine
// and no lock, so a model can drive it through years in a moment.
//
//	held     nothing ──Issued, Begins──▶ valid ──Ends──▶ expired ──Issued──▶ valid
//
//	doing    idle ── due ──▶ asking ──Issued────▶ waiting for Begins ──▶ idle
//	                           │  ───Postponed──▶ idle
//	                           └────Failed──────▶ pausing ── pause over ──▶ idle
//
// A certificate is due when it is wanted, nothing is in flight or waiting, no pause runs,
// and one of these holds: nothing valid is held, the renewal has come, a root was lost, or
// the rotation was brought forward.
package rotation

import (
	"math/rand/v2"
	"time"
)

// calm is how long roots must leave a certificate alone before its next loss is handled
// at once. Replicas of an authority that disagree on its roots would otherwise make the
// agent ask all the time.
const calm = time.Minute

// Machine is the state of one certificate's rotation. The zero value holds nothing and is
// not wanted.
type Machine struct {
	wanted   bool
	asking   bool
	again    bool // something changed while an attempt was in flight
	reported bool // the expiry was reported
	held     Term
	next     *Term     // verified, but not valid yet; nil: there is none, as nearly always
	forward  time.Time // the rotation is due by then at the latest; zero: no change
	bare     time.Time // monotonic: since when it has been asked for with nothing held before
	pause    Pause
	replace  *Pause    // when to replace what lost its root; nil: it has not
	lost     time.Time // monotonic: when a root was last lost
	losses   uint8     // in a row, each within calm of the one before
	waits    Waits
	advice   *advice // nil: there is none
}

// Actions is what a Step asks of the owner.
type Actions struct {
	// Install means to serve the certificate last passed to Issued, from now on.
	Install bool
	// ReportExpired means that the held certificate has expired; reported once.
	ReportExpired bool
	// Ask means to call Begin and to request a certificate. It repeats until Begin.
	Ask bool
	// Consult means to call Consult and to ask the authority when to renew. It repeats until
	// Consult.
	Consult bool
	// Wake is when to call Step again at the latest if nothing happens; zero: never.
	Wake time.Duration
}

// Step does what is due at now.
func (m *Machine) Step(now Time) (do Actions) {
	if m.next != nil && !m.next.Begins.After(now.Wall) {
		do.Install = m.install(now.Wall)
	}
	if m.wanted && !m.held.none() && !m.reported && now.Wall.After(m.held.Ends) {
		m.reported, do.ReportExpired = true, true
	}
	do.Ask = m.Due(now)
	do.Consult = !do.Ask && m.consultable(now) && m.advice.pause.Over(now)
	do.Wake = m.wake(now)
	return do
}

func (m *Machine) install(now time.Time) bool {
	next := *m.next
	m.next = nil
	if !next.Ends.After(now) {
		return false // the clock jumped past it
	}
	m.Hold(next)
	return true
}

// Hold takes over a certificate that is served already, as one of the last run.
func (m *Machine) Hold(t Term) {
	m.held, m.reported, m.replace, m.forward, m.bare, m.advice = t, false, nil, time.Time{}, time.Time{}, nil
}

// Due reports whether to begin an attempt now. It goes by the wall clock: setting it back
// causes no second request, setting it forward past the renewal causes the first.
func (m *Machine) Due(now Time) bool {
	if !m.wanted || m.asking || m.next != nil || !m.pause.Over(now) {
		return false
	}
	return m.Needed(now) || !m.forward.IsZero() && !now.Wall.Before(m.forward)
}

// Needed reports whether a new certificate is needed by now, apart from a rotation that was
// brought forward.
func (m *Machine) Needed(now Time) bool {
	return m.held.none() || m.replace != nil && m.replace.Over(now) ||
		!now.Wall.Before(m.held.Renew) || now.Wall.After(m.held.Ends)
}

// wake returns the time until something is due. What is past due is already in hand.
func (m *Machine) wake(now Time) (d time.Duration) {
	sooner := func(wait time.Duration) {
		if wait > 0 && (d == 0 || wait < d) {
			d = wait
		}
	}
	sooner(m.pause.Left(now))
	if m.next != nil {
		sooner(m.next.Begins.Sub(now.Wall))
	}
	if m.held.none() {
		return d
	}
	sooner(m.held.Ends.Sub(now.Wall) + 1) // valid through Ends itself
	if !m.wanted {
		return d
	}
	sooner(m.held.Renew.Sub(now.Wall))
	if m.replace != nil {
		sooner(m.replace.Left(now))
	}
	if m.consultable(now) {
		sooner(m.advice.pause.Left(now))
	}
	if !m.forward.IsZero() {
		sooner(m.forward.Sub(now.Wall))
	}
	return d
}

// Begin records that an attempt is in flight.
func (m *Machine) Begin(now Time) {
	m.asking = true
	if m.bare.IsZero() && m.held.none() {
		m.bare = now.Mono
	}
}

// Abandon forgets the attempt in flight.
func (m *Machine) Abandon() { m.asking, m.again = false, false }

// Issued settles an attempt that brought a verified certificate. Step serves it when it
// begins.
func (m *Machine) Issued(t Term) {
	m.ended()
	m.next = &t
}

// Postponed settles an attempt that requested nothing, as it need not be yet.
func (m *Machine) Postponed() { m.ended() }

func (m *Machine) ended() {
	m.asking, m.again, m.forward, m.pause = false, false, time.Time{}, Pause{}
	m.waits.Reset()
}

// Failed settles an attempt that failed, and returns the wait before the next.
func (m *Machine) Failed(now Time, err error) (wait time.Duration) {
	again := m.again
	m.Abandon()
	wait = m.waits.After(err, now.Mono, m.Left(now.Wall), m.without(now))
	if again { // the cause may be gone: see Kick
		wait = 0
		m.waits.Reset()
	}
	m.RetryIn(now, wait)
	return wait
}

// RetryIn sets the wait before the next attempt.
func (m *Machine) RetryIn(now Time, wait time.Duration) { m.pause = NewPause(wait, now) }

// Pausing returns the rest of the wait before the next attempt; zero for none, or if it has
// no end.
func (m *Machine) Pausing(now Time) time.Duration { return m.pause.Left(now) }

// Left returns the remaining life of the held certificate, zero if none is held.
func (m *Machine) Left(wall time.Time) time.Duration {
	if m.held.none() {
		return 0
	}
	return max(0, m.held.Ends.Sub(wall))
}

// without returns how long nothing valid has been held.
func (m *Machine) without(now Time) time.Duration {
	switch {
	case !m.held.none():
		return max(0, now.Wall.Sub(m.held.Ends))
	case m.bare.IsZero():
		return 0
	}
	return now.Mono.Sub(m.bare)
}

// Kick ends the pause, as the token, settings or provider have changed. What is in flight
// is retried at once if it fails.
func (m *Machine) Kick() {
	m.waits.Reset()
	m.pause = Pause{}
	m.again = m.asking
}

// Want sets whether a certificate is wanted. An unwanted one is neither requested nor
// missed.
func (m *Machine) Want(wanted bool) { m.wanted = wanted }

// Release drops everything; nothing is wanted until Want.
func (m *Machine) Release() { *m = Machine{} }

// BeginBy lets a certificate that waits begin by t, if that is sooner.
func (m *Machine) BeginBy(t time.Time) {
	if m.next != nil && t.Before(m.next.Begins) {
		m.next.Begins = t
	}
}

// Discard drops a certificate that waits to begin.
func (m *Machine) Discard() { m.next = nil }

// RenewAt moves the renewal of what is held. Advice is asked for again.
func (m *Machine) RenewAt(t time.Time) {
	m.held.Renew = t
	if m.advice != nil {
		m.advice = &advice{asking: m.advice.asking, since: m.advice.since}
	}
}

// BringForward makes an attempt due by t at the latest; zero takes that back. The attempt
// may end as Postponed.
func (m *Machine) BringForward(t time.Time) { m.forward = t }

// RootLoss records that the held certificate no longer chains to a root, and returns when it
// is replaced: within spread, and ever later if roots are lost again and again.
func (m *Machine) RootLoss(now Time, spread time.Duration) (in time.Duration) {
	if spread > 0 {
		in = rand.N(spread)
	}
	if m.lost.IsZero() || now.Mono.Sub(m.lost) >= calm {
		m.losses = 0
	}
	if m.losses > 0 {
		in = max(in, min(shortest<<(m.losses-1), calm))
	}
	m.losses = min(m.losses+1, 8)
	m.lost = now.Mono.Add(in)
	p := NewPause(in, now)
	m.replace = &p
	return in
}

// RootFound takes a RootLoss back.
func (m *Machine) RootFound() { m.replace = nil }

// Held returns the term of what is held, and whether anything is.
func (m *Machine) Held() (Term, bool) { return m.held, !m.held.none() }

// Asking reports whether an attempt is in flight.
func (m *Machine) Asking() bool { return m.asking }

// Waiting reports whether a verified certificate waits to begin.
func (m *Machine) Waiting() bool { return m.next != nil }

// Lost reports whether a root was lost.
func (m *Machine) Lost() bool { return m.replace != nil }

// Wanted reports whether a certificate is wanted.
func (m *Machine) Wanted() bool { return m.wanted }
