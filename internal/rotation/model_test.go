package rotation

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// model drives a Machine as an owner does, by virtual clocks, and checks what it may do.
type model struct {
	Machine
	r        *rapid.T
	wall     time.Time
	mono     time.Time
	inFlight bool
	issued   Term // the last certificate that was issued and not served yet
	served   Term
	reported bool
	free     bool      // something happened that ends a pause
	until    time.Time // by the monotonic clock: no attempt before
	jumped   bool      // the wall clock was set since the pause began
}

func (m *model) now() Time { return Time{m.wall, m.mono} }

func (m *model) fail(format string, args ...any) {
	m.r.Helper()
	m.r.Fatalf("at %s: %s", m.wall.Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// step steps and checks the actions; attempts begin at once.
func (m *model) step() (wake time.Duration) {
	do := m.Step(m.now())
	if do.Install {
		m.install()
	}
	if do.ReportExpired {
		if m.reported || m.served.none() || !m.wall.After(m.served.Ends) {
			m.fail("an expiry is reported twice, or before its time")
		}
		m.reported = true
	}
	if do.Ask {
		m.ask()
	}
	if do.Consult {
		m.consult()
	}
	return do.Wake
}

func (m *model) install() {
	switch {
	case m.issued.none(), m.issued.Begins.After(m.wall), !m.issued.Ends.After(m.wall):
		m.fail("what is served is not valid: %v", m.issued)
	}
	m.served, m.issued, m.reported = m.issued, Term{}, false
	m.Advisable(m.now(), m.wall)
}

func (m *model) consult() {
	if m.advice.asking || m.inFlight || m.Waiting() || !m.Wanted() {
		m.fail("an unwanted question, or another one")
	}
	m.Consult()
}

// advised settles the question in flight with a window that begins after in, or not at all.
func (m *model) advised(in time.Duration) {
	if m.advice == nil || !m.advice.asking {
		return
	}
	renew, moved := m.Advised(m.now(), ca.RenewalInfo{Start: m.wall.Add(in), End: m.wall.Add(in + time.Minute)})
	tenth := m.held.Ends.Sub(m.advice.since) / 10
	if moved && (renew.Before(m.wall) || renew.Before(m.advice.since.Add(tenth)) || renew.After(m.held.Ends.Add(-tenth)) && renew.After(m.wall)) {
		m.fail("advice moves the renewal of what began %s and ends %s to %s", m.advice.since, m.held.Ends, renew)
	}
}

func (m *model) unadvised(err error) {
	if m.advice != nil && m.advice.asking {
		m.Unadvised(m.now(), err)
	}
}

func (m *model) ask() {
	switch {
	case m.inFlight, m.Waiting(), !m.Wanted():
		m.fail("another attempt, or an unwanted one")
	case !m.free && !m.jumped && m.mono.Before(m.until):
		m.fail("an attempt before the pause is over, %s too early", m.until.Sub(m.mono))
	}
	m.Begin(m.now())
	m.inFlight = true
}

// pass lets time go by, from wake to wake.
func (m *model) pass(d time.Duration) {
	for d > 0 {
		wake := m.step()
		if m.inFlight || wake <= 0 {
			wake = d
		}
		wake = min(wake, d)
		m.wall, m.mono, d = m.wall.Add(wake), m.mono.Add(wake), d-wake
	}
	m.step()
}

func (m *model) failed(err error) {
	if !m.inFlight {
		return
	}
	m.inFlight = false
	left, again := m.Left(m.wall), m.again
	wait := m.Failed(m.now(), err)
	if left > 0 && wait > max(left/10, time.Second) && ca.RetryAfter(err) == 0 {
		m.fail("the wait is %s and %s are left", wait, left)
	}
	if wait == 0 && !again || wait > 0 && wait < 700*time.Millisecond || wait > 50*time.Minute {
		m.fail("the wait after %v is %s", err, wait)
	}
	m.free, m.jumped, m.until = false, false, m.mono.Add(wait)
}

// succeeded settles the attempt with a certificate that begins after ahead.
func (m *model) succeeded(ahead time.Duration) {
	if !m.inFlight {
		return
	}
	m.inFlight = false
	begins := m.wall.Add(ahead)
	m.issued = Term{Begins: begins, Renew: Renewal(0.5, 0.1, begins, begins.Add(time.Hour)), Ends: begins.Add(time.Hour)}
	m.Issued(m.issued)
	m.free, m.until = true, time.Time{}
}

func (m *model) jump(d time.Duration) { m.wall, m.jumped = m.wall.Add(d), true }

var happenings = map[string]func(*model){
	"a second":        func(m *model) { m.pass(time.Second) },
	"ten minutes":     func(m *model) { m.pass(10 * time.Minute) },
	"an hour":         func(m *model) { m.pass(time.Hour) },
	"away":            func(m *model) { m.failed(ca.ErrUnavailable) },
	"denied":          func(m *model) { m.failed(ca.ErrDenied) },
	"a wrong reply":   func(m *model) { m.failed(errReply) },
	"rate limited":    func(m *model) { m.failed(ca.ErrRateLimited) },
	"asked to wait":   func(m *model) { m.failed(told(5 * time.Minute)) },
	"a certificate":   func(m *model) { m.succeeded(0) },
	"one for later":   func(m *model) { m.succeeded(4 * time.Minute) },
	"postponed":       func(m *model) { m.postponed() },
	"kicked":          func(m *model) { m.Kick(); m.free = true },
	"a root is lost":  func(m *model) { m.lose() },
	"it is found":     func(m *model) { m.RootFound() },
	"brought forward": func(m *model) { m.BringForward(m.wall) },
	"it is unwanted":  func(m *model) { m.Want(false) },
	"it is wanted":    func(m *model) { m.Want(true) },
	"renew now":       func(m *model) { m.advised(-time.Hour) },
	"renew later":     func(m *model) { m.advised(20 * time.Minute) },
	"renew too late":  func(m *model) { m.advised(20 * time.Hour) },
	"no advice":       func(m *model) { m.unadvised(ca.ErrUnavailable) },
	"never any":       func(m *model) { m.unadvised(ca.ErrUnimplemented) },
	"set forward":     func(m *model) { m.jump(20 * time.Minute) },
	"suspended":       func(m *model) { m.jump(3 * time.Hour) },
	"set back":        func(m *model) { m.jump(-20 * time.Minute) },
}

func (m *model) postponed() {
	if m.inFlight {
		m.inFlight = false
		m.Postponed()
		m.free = true
		if m.Due(m.now()) && !m.Needed(m.now()) {
			m.fail("what was postponed is due again at once")
		}
	}
}

func (m *model) lose() {
	if _, held := m.Held(); held {
		m.RootLoss(m.now(), 0)
	}
}

func TestRandomEventsKeepRotationRules(t *testing.T) {
	names := slices.Sorted(maps.Keys(happenings))
	rapid.Check(t, func(r *rapid.T) {
		m := &model{r: r, wall: aDay, mono: aDay}
		m.Want(true)
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 40).Draw(r, "story") {
			happenings[name](m)
			m.step()
		}
		m.heals()
	})
}

// heals demands a valid certificate, and few attempts, once nothing goes wrong any more.
func (m *model) heals() {
	m.Want(true)
	m.RootFound()
	attempts := 0
	for range 24 {
		m.succeeded(0)
		m.pass(5 * time.Minute)
		if m.inFlight {
			attempts++
		}
	}
	m.succeeded(0)
	m.step()
	if held, ok := m.Held(); !ok || m.wall.After(held.Ends) {
		m.fail("it does not heal")
	}
	if attempts > 8 {
		m.fail("%d attempts in two hours", attempts)
	}
}
