package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// reload asks run to switch to another plan.
type reload struct {
	ctx   context.Context // bounds the way to ready
	plan  *Plan
	reply chan error // has room for one
}

// reload starts a life of the new plan beside the one that is ready.
func (s *Supervisor) reload(r *reload) {
	if s.current != nil && s.plan.same(r.plan) {
		r.plan.Close()
		s.current.offerAgain()
		s.status.LastReload = ""
		s.publish()
		r.reply <- nil
		return
	}
	if !s.plan.proven {
		s.replace(r.plan)
		r.reply <- nil
		return
	}
	if s.coming != nil { // of the old plan: superseded, and restarted if the new one fails
		s.abandon()
		s.restart = time.After(0)
	}
	r.plan.inherit(s.plan)
	s.log.Info("starting new provider generation", "path", r.plan.Path)
	s.begin(r.plan, r)
}

// replace starts anew from a plan, as no life of the old one was ever ready.
func (s *Supervisor) replace(p *Plan) {
	if s.plan.same(p) {
		p.Close()
	} else {
		s.abandon()
		s.follow(p)
	}
	if s.coming == nil {
		s.begin(s.plan, nil)
	}
}

// turnDown keeps the old plan: the new one did not get ready.
func (s *Supervisor) turnDown(l *life, err error) {
	if l.Instance != nil {
		s.dismiss(l, func() {})
	}
	l.plan.Close()
	s.status.LastReload = text.Clean(err.Error())
	s.log.Warn("provider reload failed, keeping the old generation", "error", s.status.LastReload)
	s.publish()
}

// Reload starts a life of the plan beside the one that is ready. When the new one is
// ready, new calls go to it, and calls in flight finish in the old one. If it does not get
// ready before ctx ends ([Options.CallTimeout] without a deadline), Reload returns the
// reason and keeps the old one. If nothing has changed, nothing is started. If no life of
// the old plan was ever ready, there is nothing to keep: the new plan is started as by
// Begin, and Reload returns nil at once. Reloads must not overlap.
func (s *Supervisor) Reload(ctx context.Context, p *Plan) error {
	p.Use()
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
