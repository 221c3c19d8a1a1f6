package pluginhost

import (
	"context"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// gate is where calls wait for a life that is ready. Only the supervisor moves it.
type gate struct {
	mu      sync.Mutex
	status  Status
	plan    *Plan         // in force
	life    *life         // where calls go; nil: they wait
	changed chan struct{} // closed and replaced at each change
}

func (g *gate) read() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// move sets the status, the plan in force and the life that calls go to.
func (g *gate) move(status Status, p *Plan, l *life) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status, g.plan, g.life = status, p, l
	close(g.changed)
	g.changed = make(chan struct{})
}

// inForce returns the plan that calls without a plan go to.
func (g *gate) inForce() *Plan {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.plan
}

// end fails the calls of a plan that is not, and will not be, in force.
func (g *gate) end(p *Plan) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.ended = true
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait returns the life of the plan to call; without one, that of the plan in force. It fails
// at once while the circuit is open, after the provider refused its settings, and after Close.
func (g *gate) wait(ctx context.Context, of *Plan) (*life, error) {
	for {
		g.mu.Lock()
		status, l, changed := g.status, g.life, g.changed
		early, late := of != nil && of != g.plan, of != nil && of.ended
		g.mu.Unlock()
		switch {
		case late:
			return nil, ca.Errorf(ca.Unavailable, "provider %q has other settings now", status.Name)
		case early && status.State != Stopped && status.State != Draining:
			// It waits for the commit.
		case l != nil && !process.HasEnded(l):
			return l, nil
		case status.State == CircuitOpen:
			return nil, &ca.Error{
				Reason: ca.Unavailable, RetryAfter: max(0, time.Until(status.NextStart)),
				Message: "provider " + text.Quote(status.Name) + " failed too often, next try at " +
					clock.Stamp(status.NextStart) + ": " + status.LastError,
			}
		case status.State == Refused:
			return nil, ca.Errorf(ca.Unavailable, "provider %q: %s", status.Name, status.LastError)
		case status.State == Stopped || status.State == Draining:
			return nil, ca.Errorf(ca.Unavailable, "provider %q is closed", status.Name)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ca.Errorf(ca.ReasonFor(ctx.Err()), "provider %q is %s: %s", status.Name, status.State, orNothing(status.LastError))
		}
	}
}

func orNothing(s string) string {
	if s == "" {
		return "no error so far"
	}
	return s
}
