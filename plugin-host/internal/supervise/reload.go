package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// reload asks run to go over to another plan.
type reload struct {
	ctx   context.Context // bounds the way to ready
	plan  *Plan
	reply chan error // has room for one
}

// reload starts a life of the new plan beside the one that is ready.
func (s *Supervisor) reload(r *reload) {
	if s.current != nil && s.plan.same(r.plan) {
		r.plan.Close()
		s.status.LastReload = ""
		s.publish()
		r.reply <- nil
		return
	}
	if s.coming != nil { // of the old plan: it is superseded, and comes back if the new one is no better
		s.abandon()
		s.restart = time.After(0)
	}
	s.log.Info("starting new provider generation", "path", r.plan.Path)
	s.begin(r.plan, r)
}

// turnDown keeps what there was: the new plan did not get ready.
func (s *Supervisor) turnDown(l *life, err error) {
	if l.Instance != nil {
		s.dismiss(l, func() {})
	}
	l.plan.Close()
	s.status.LastReload = text.Clean(err.Error())
	s.log.Warn("provider reload failed, keeping the old generation", "error", s.status.LastReload)
	s.publish()
}

// Reload starts a life of the plan beside the one that is ready. Calls move when the new
// one is ready, and those in flight end in the old one. If it does not get ready before
// ctx ends (or [Options.CallTimeout], without a deadline), the error says why and the old
// one stays. If nothing has changed, nothing is started. Reloads must not overlap.
func (s *Supervisor) Reload(ctx context.Context, p *Plan) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	r := &reload{ctx: ctx, plan: p, reply: make(chan error, 1)}
	select {
	case s.reloads <- r:
	case <-s.closed:
		p.Close()
		return ca.Errorf(ca.Unavailable, "provider %q is closed", s.name)
	}
	if err := <-r.reply; err != nil {
		return fmt.Errorf("provider %q: %w", s.name, err)
	}
	return nil
}
