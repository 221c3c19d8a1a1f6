package pluginhost

import (
	"context"
	"errors"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

// errSuperseded ends a prepared life that did nothing wrong.
var errSuperseded = errors.New("superseded: the provider was restarted, closed or given other settings first")

// reload asks run to prepare another plan.
type reload struct {
	ctx   context.Context // bounds the way to ready
	plan  *plan
	reply chan error // has room for one
}

// prepared is a plan that may be put in force.
type prepared struct {
	plan *plan
	life *life // ready; nil: no life of the plan in force was ever ready, so there is nothing to keep
}

func (s *Provider) closeUnused(p *plan) {
	if p != s.gate.inForce() {
		p.close()
	}
}

func (s *Provider) reload(r *reload) {
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
		s.next = &prepared{plan: r.plan}
		r.reply <- nil
	default:
		if s.coming != nil { // superseded, and restarted if the new one fails
			s.abandon()
			s.restart = time.After(0)
		}
		r.plan.inherit(s.plan)
		s.log.Info("starting new provider generation", "path", r.plan.path)
		s.begin(r.plan, r)
	}
}

// nudge has the plan in force try again what failed.
func (s *Provider) nudge() {
	s.status.LastReload = ""
	switch {
	case s.current != nil:
		s.current.offerAgain()
		s.publish()
	case s.coming == nil:
		s.begin(s.plan, nil)
	}
}

func (s *Provider) commit(p *plan) {
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

func (s *Provider) abort(p *plan) {
	switch {
	case s.next != nil && s.next.plan == p:
		s.unprepare()
	case p != s.plan && !p.ended:
		s.drop(p)
	}
}

// replace starts anew from a plan.
func (s *Provider) replace(p *plan) {
	s.abandon()
	s.follow(p)
	if old := s.current; old != nil { // it got ready after all
		s.current = nil
		s.retire(old)
	}
	s.begin(p, nil)
}

// unprepare drops what is prepared.
func (s *Provider) unprepare() {
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
func (s *Provider) drop(p *plan) {
	p.close()
	s.gate.end(p)
}

// turnDown keeps the plan in force: the new one did not get ready.
func (s *Provider) turnDown(l *life, err error) {
	if l.instance != nil {
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
