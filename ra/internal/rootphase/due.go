package rootphase

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
)

// since returns since when a root is published; zero if it is not. Where nobody says so, one that
// the record does not have yet is since it was heard of.
func (m *Machine) since(r *root) time.Time {
	if r.written.IsZero() && !m.confirmed() {
		return r.announced
	}
	return r.written
}

// ripe reports whether a root may be trusted by now. For one that is led the record says so, unless
// the authority leaves no choice.
func (m *Machine) ripe(r *root, now time.Time) bool {
	due := m.due(r)
	return (!m.led || r.unplanned) && !due.IsZero() && !due.After(now)
}

// due returns when a root is trusted; zero while that depends on where it is written. Objects that
// others own can delay a planned root. Once the authority signs below it, the end is Unplanned after
// it was announced, wherever it is written by then.
func (m *Machine) due(r *root) (at time.Time) {
	if since := m.since(r); !since.IsZero() {
		at = since.Add(m.conf.Wait)
		if m.conf.Outstanding {
			at = clock.Later(at, r.after.at)
		}
	}
	if end := r.announced.Add(m.conf.Unplanned); r.unplanned && (at.IsZero() || end.Before(at)) {
		return end
	}
	return at
}

// gone reports whether a root goes: it has ended, or nothing below it lives any more. The
// last trusted one stays until another is trusted.
func (m *Machine) gone(r *root, now time.Time) bool {
	switch {
	case !r.cert.NotAfter.After(now):
		return true
	case r.recorded || r.withdrawn.IsZero() || m.leaves(r).After(now):
		return false
	}
	return r.trusted.IsZero() || m.another(r)
}

// leaves returns when a withdrawn root may go. One under which nothing was given out needs
// no wait. For those who are led, whoever leads has waited.
func (m *Machine) leaves(r *root) time.Time {
	switch {
	case r.trusted.IsZero() && r.ends.at.IsZero():
		return r.withdrawn
	case m.led:
		return clock.Later(r.ends.kept, r.withdrawn)
	}
	return clock.Later(r.ends.kept, r.withdrawn.Add(m.conf.Wait))
}

func (m *Machine) another(than *root) bool {
	for _, r := range m.roots {
		if r != than && !r.trusted.IsZero() && r.withdrawn.IsZero() {
			return true
		}
	}
	return false
}

// changes returns when a root's phase changes by itself; zero for never.
func (m *Machine) changes(r *root) time.Time {
	switch {
	case !r.withdrawn.IsZero() && m.another(r):
		return m.leaves(r)
	case r.withdrawn.IsZero() && r.trusted.IsZero() && !m.due(r).IsZero():
		return m.due(r)
	}
	return r.cert.NotAfter
}
