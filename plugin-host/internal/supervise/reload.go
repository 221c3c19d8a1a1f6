package supervise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A reload has two steps, so that its caller can put a new plan in force together with what
// belongs to it: Prepare brings a life of the new plan to ready, beside the one that calls go
// to, and Commit sends them to the new one. Abort ends it instead.

// errSuperseded ends a prepared life that did nothing wrong.
var errSuperseded = errors.New("superseded: the provider was restarted, closed or given other settings first")

// reload asks run to prepare another plan.
type reload struct {
	ctx   context.Context // bounds the way to ready
	plan  *Plan
	reply chan error // has room for one
}

// next is a prepared plan.
type next struct {
	plan *Plan
	life *life // ready; nil: no life of the plan in force was ever ready, so there is nothing to keep
}

// InForce returns the plan that calls go to.
func (s *Supervisor) InForce() *Plan { return s.gate.inForce() }

// Known returns the plan in force if it is the same as p, which it then closes; else p.
func (s *Supervisor) Known(p *Plan) *Plan {
	if is := s.gate.inForce(); is.same(p) {
		p.Close()
		return is
	}
	return p
}

// Prepare starts a life of the plan beside the one that is ready, and returns when it is ready, too.
// Calls go where they went until Commit. If it does not get ready before ctx ends
// ([Options.CallTimeout] without a deadline), Prepare returns the reason and closes the plan.
// For the plan in force it starts nothing that runs: it only ends a wait for the next start.
// If no life of that was ever ready, the new plan is not started before Commit. A later Prepare
// drops what an earlier one prepared.
func (s *Supervisor) Prepare(ctx context.Context, p *Plan) error {
	p.Use()
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	r := &reload{ctx: ctx, plan: p, reply: make(chan error, 1)}
	if !s.order(context.Background(), func() { s.reload(r) }) {
		s.closeUnused(p)
		return ca.Errorf(ca.Unavailable, "provider %q is closed", s.name)
	}
	if err := <-r.reply; err != nil {
		return fmt.Errorf("provider %q: %w", s.name, err)
	}
	return nil
}

// Commit sends new calls to the prepared plan; calls in flight finish in the life before. A
// prepared life that has ended meanwhile is started again.
func (s *Supervisor) Commit(p *Plan) { s.order(context.Background(), func() { s.commit(p) }) }

// Abort ends what Prepare started, and closes a plan that is not to be prepared any more. For the
// plan in force it does nothing.
func (s *Supervisor) Abort(p *Plan) {
	if !s.order(context.Background(), func() { s.abort(p) }) {
		s.closeUnused(p)
	}
}

func (s *Supervisor) closeUnused(p *Plan) {
	if p != s.gate.inForce() {
		p.Close()
	}
}

func (s *Supervisor) reload(r *reload) {
	if r.ctx.Err() != nil { // it is late: what is prepared or on its way may be a newer one's
		s.abort(r.plan)
		r.reply <- context.Cause(r.ctx)
		return
	}
	s.unprepare()
	switch {
	case r.plan == s.plan:
		s.nudge()
		r.reply <- nil
	case !s.plan.ledger.read().taken:
		s.next = &next{plan: r.plan}
		r.reply <- nil
	default:
		if s.coming != nil { // superseded, and restarted if the new one fails
			s.abandon()
			s.restart = time.After(0)
		}
		r.plan.inherit(s.plan)
		s.log.Info("starting new provider generation", "path", r.plan.Path)
		s.begin(r.plan, r)
	}
}

// nudge has the plan in force try again what failed.
func (s *Supervisor) nudge() {
	s.status.LastReload = ""
	switch {
	case s.current != nil:
		s.current.offerAgain()
		s.publish()
	case s.coming == nil:
		s.begin(s.plan, nil)
	}
}

func (s *Supervisor) commit(p *Plan) {
	n := s.next
	if n == nil || n.plan != p {
		return
	}
	s.next = nil
	if n.life == nil {
		s.replace(p)
		return
	}
	s.abandon() // a restart of the plan before
	s.follow(p)
	s.takeOver(n.life)
}

func (s *Supervisor) abort(p *Plan) {
	switch {
	case s.next != nil && s.next.plan == p:
		s.unprepare()
	case p != s.plan && !p.ended:
		s.drop(p)
	}
}

// replace starts anew from a plan.
func (s *Supervisor) replace(p *Plan) {
	s.abandon()
	s.follow(p)
	if old := s.current; old != nil { // it got ready after all
		s.current = nil
		s.retire(old)
	}
	s.begin(p, nil)
}

// unprepare drops what is prepared.
func (s *Supervisor) unprepare() {
	n := s.next
	if n == nil {
		return
	}
	s.next = nil
	if n.life != nil {
		s.dismiss(n.life, func() {})
	}
	s.drop(n.plan)
}

// drop closes a plan and fails the calls of its client.
func (s *Supervisor) drop(p *Plan) {
	p.Close()
	s.gate.end(p)
}

// turnDown keeps the plan in force: the new one did not get ready.
func (s *Supervisor) turnDown(l *life, err error) {
	if l.Instance != nil {
		s.dismiss(l, func() {})
	}
	s.drop(l.plan)
	if errors.Is(l.reload.ctx.Err(), context.Canceled) {
		return // the caller has left
	}
	s.status.LastReload = text.Clean(err.Error())
	s.log.Warn("provider reload failed, keeping the old generation", "error", s.status.LastReload)
	s.publish()
}
