package supervise

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
)

// begin starts a life of the plan. Its outcome is a message to run.
func (s *Supervisor) begin(p *Plan, r *reload) {
	s.number++
	s.started = time.Now()
	s.rest()
	s.altered = nil
	ctx := context.Background()
	if r == nil {
		s.restart = nil
		s.status.Generation = s.number
		s.enter(Starting)
	} else {
		ctx = r.ctx
	}
	l := &life{plan: p, number: s.number, reload: r, outcome: make(chan error, 1), offers: newOffers()}
	ctx, l.cancel = context.WithCancel(ctx)
	s.coming = l
	var err error
	if l.Instance, err = p.Launch(s.number); err != nil {
		l.cancel()
		l.outcome <- err
		return
	}
	if r == nil {
		s.status.Take(l.Report())
		s.enter(Configuring)
	}
	go func() {
		defer l.cancel()
		l.outcome <- s.bring(ctx, l)
	}()
}

// abandon gives up the life on its way to ready.
func (s *Supervisor) abandon() {
	l := s.coming
	if l == nil {
		return
	}
	s.coming = nil
	l.cancel()
	if l.Instance != nil {
		s.dismiss(l, func() { <-l.outcome }) //nolint:errcheck // no longer of interest
	}
	if l.reload != nil {
		s.drop(l.plan)
		l.reload.reply <- errSuperseded
	}
}

// bring makes the life ready for calls or returns why it cannot.
func (s *Supervisor) bring(ctx context.Context, l *life) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.Ended(): // nothing below can succeed
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.prepare(ctx, l)
	if err != nil && process.HasEnded(l) {
		return l.Err() // has more detail than the failed call
	}
	return err
}

// tellFirst sends Start the outcome of the first life, once.
func (s *Supervisor) tellFirst(err error) {
	select {
	case s.first <- err:
	default: // Start has its answer
	}
}
