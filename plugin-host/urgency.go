package pluginhost

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A provider that crashes or hangs may cost the engine time, but no certificate. What the
// engine's schedule asks for brings a start forward, ends a start that hangs, and has a
// life that does not answer checked out of turn.

// need returns the life for a call of the engine's schedule. If there is none, the next
// may be started for it.
func (c Client) need(ctx context.Context) (*life, error) {
	if _, due := c.s.opts.Due(c.s.name); due && c.s.gate.empty() {
		return c.ask(ctx)
	}
	return c.wait(ctx)
}

// want returns the life for a call whose caller waits for the answer, so that it is due now,
// whatever the schedule.
func (c Client) want(ctx context.Context) (*life, error) {
	if c.s.gate.empty() {
		c.s.waiting.Add(1)
		defer c.s.waiting.Add(-1)
		return c.ask(ctx)
	}
	return c.wait(ctx)
}

// ask has run look at what is due, and waits for a life.
func (c Client) ask(ctx context.Context) (*life, error) {
	c.s.order(ctx, c.s.answer)
	return c.wait(ctx)
}

// empty reports whether there is no life to call.
func (g *gate) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life == nil || process.HasEnded(g.life)
}

// left returns how long the engine can still wait for a certificate that is due; not
// positive if none is held.
func (s *Provider) left(now time.Time) (left time.Duration, due bool) {
	end, due := s.opts.Due(s.name)
	return end.Sub(now), due
}

// schedule sets when the next life is started.
func (s *Provider) schedule(at time.Time) {
	now := rotation.Now(clock.Wall())
	s.pause, s.status.NextStart = rotation.NewPause(at.Sub(now.Mono), now), at
	s.arm()
}

// arm sets the timer for the next start. It looks at the clocks every 30 s, as a timer stands
// still in a suspend.
func (s *Provider) arm() {
	s.restart = time.After(min(s.pause.Left(rotation.Now(clock.Wall())), 30*time.Second))
}

// wake starts the next life if its pause is over.
func (s *Provider) wake() {
	if s.pause.Over(rotation.Now(clock.Wall())) {
		s.again()
		return
	}
	s.arm()
}

// answer does what a call for a certificate that is due asks for. A start that may be now is not left to
// the timer: the call would find the circuit open meanwhile.
func (s *Provider) answer() {
	s.urge(s.coming)
	s.hasten()
	if s.coming == nil && s.restart != nil && !s.status.NextStart.After(time.Now()) {
		s.again()
	}
	s.gate.move(s.status, s.plan, s.current)
}

// hasten brings the next start forward for what is due.
func (s *Provider) hasten() {
	if s.coming != nil || s.restart == nil {
		return
	}
	now := time.Now()
	sooner := func(left time.Duration) {
		at := s.started.Add(s.recovery.gap(now, left))
		if at.Before(s.status.NextStart) && (left > 0 || s.status.State != Refused) { // a refused provider without an end to meet has its own waits
			s.schedule(at)
		}
	}
	if left, due := s.left(now); due {
		sooner(left)
	}
	if s.waiting.Load() > 0 {
		sooner(0)
	}
}

// inTime bounds a step of a start: half of what is left if a certificate is due, so that
// another start can be tried.
func (s *Provider) inTime(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if left, due := s.left(time.Now()); due && left > 0 {
		most = min(most, max(leastGap, left/2))
	}
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("start timed out after %s", most))
}

// urge kills a life that does not answer in time. It bounds a step that began before the
// certificate was due.
func (s *Provider) urge(l *life) {
	left, due := s.left(time.Now())
	if !due || left <= 0 || l == nil || l.instance == nil || l.urgent != nil {
		return
	}
	within := max(leastGap, left/2)
	l.urgent = time.AfterFunc(within, func() {
		if !l.idle.Load() {
			l.Kill(fmt.Errorf("not ready within %s, and a certificate is due", within))
		}
	})
}

// relax lets a life take its time again.
func (l *life) relax() {
	if l.urgent != nil {
		l.urgent.Stop()
	}
}

// suspect checks a life's health out of turn if a call for a certificate that is due takes
// a quarter of what is left, until the function that it returns.
func (s *Provider) suspect(l *life) (answered func() bool) {
	left, due := s.left(time.Now())
	if !due || left <= 0 {
		return func() bool { return false }
	}
	patience := min(max(leastGap, left/4), healthDeadline)
	return time.AfterFunc(patience, func() {
		ctx, cancel := context.WithTimeout(l.leaving, patience)
		defer cancel()
		if err := l.Health(ctx); err != nil && ca.ActionFor(err) != ca.Missing && l.leaving.Err() == nil {
			l.Kill(fmt.Errorf("no answer within %s, and a certificate is due: %w", 2*patience, err))
		}
	}).Stop
}
