package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A provider that crashes or hangs may cost the engine time, but no certificate. What the
// engine's schedule asks for brings a start forward, ends a start that hangs, and has a
// life that does not answer checked out of turn.

// ask has run look at what is due; run closes it.
type ask chan struct{}

// need returns the life for a call of the engine's schedule. If there is none, the next
// may be started for it.
func (c Client) need(ctx context.Context) (*life, error) {
	if _, due := c.s.opts.Due(); due && c.s.gate.empty() {
		a := make(ask)
		select {
		case c.s.asks <- a:
			<-a
		case <-c.s.closed:
		case <-ctx.Done():
		}
	}
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
func (s *Supervisor) left(now time.Time) (left time.Duration, due bool) {
	end, due := s.opts.Due()
	return end.Sub(now), due
}

// schedule sets when the next life is started.
func (s *Supervisor) schedule(at time.Time) {
	s.restart, s.status.NextStart = time.After(time.Until(at)), at
}

// answer does what a call for a certificate that is due asks for. A start that may be now is not left to
// the timer: the call would find the circuit open meanwhile.
func (s *Supervisor) answer(a ask) {
	defer close(a)
	s.urge(s.coming)
	s.hasten()
	if s.coming == nil && s.restart != nil && !s.status.NextStart.After(time.Now()) {
		s.again()
	}
	s.gate.move(s.status, s.plan, s.current)
}

// hasten brings the next start forward if a certificate is due.
func (s *Supervisor) hasten() {
	now := time.Now()
	left, due := s.left(now)
	if !due || s.coming != nil || s.restart == nil {
		return
	}
	if at := s.started.Add(s.recovery.gap(now, left)); at.Before(s.status.NextStart) {
		s.schedule(at)
	}
}

// inTime bounds a step of a start: half of what is left if a certificate is due, so that
// another start can be tried.
func (s *Supervisor) inTime(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if left, due := s.left(time.Now()); due && left > 0 {
		most = min(most, max(leastGap, left/2))
	}
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("start timed out after %s", most))
}

// urge kills a life that does not answer in time. It bounds a step that began before the
// certificate was due.
func (s *Supervisor) urge(l *life) {
	left, due := s.left(time.Now())
	if !due || left <= 0 || l == nil || l.Instance == nil || l.urgent != nil {
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
func (s *Supervisor) suspect(l *life) (answered func() bool) {
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
