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
	plan  *Plan
	reply chan error // has room for one
}

func (s *Provider) closeUnused(p *Plan) {
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
		s.next = r.plan // no life of the one in force was ever ready, so there is nothing to keep
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

func (s *Provider) commit(p *Plan) {
	if s.next != p {
		return
	}
	l := p.ready
	s.next, p.ready = nil, nil
	if l == nil {
		s.replace(p)
		return
	}
	s.abandon() // a restart of the plan before
	s.follow(p)
	s.takeOver(l)
}

func (s *Provider) abort(p *Plan) {
	switch {
	case s.next == p:
		s.unprepare()
	case p != s.plan && !p.ended:
		s.drop(p)
	}
}

// replace starts anew from a plan.
func (s *Provider) replace(p *Plan) {
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
	p := s.next
	if p == nil {
		return
	}
	l := p.ready
	s.next, p.ready = nil, nil
	if l != nil {
		s.dismiss(l, func() {})
	}
	s.drop(p)
}

// drop closes a plan and fails the calls of its client.
func (s *Provider) drop(p *Plan) {
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
