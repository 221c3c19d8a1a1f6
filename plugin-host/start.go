package pluginhost

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/plugin-host/internal/process"
	"github.com/countersign-dev/countersign/sdk/trace"
)

// begin starts a life of the plan. Its outcome is a message to run.
func (s *Provider) begin(p *Plan, r *reload) {
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
	ctx, span := trace.Begin(ctx, s.opts.Tracer, "provider.start")
	span.Set("provider", s.name)
	span.SetCount("generation", s.number)
	s.coming = l
	err := traced(ctx, "launch", func(context.Context) (err error) {
		l.instance, err = p.launch(s.number)
		return err
	})
	if err != nil {
		l.cancel()
		span.End(err)
		l.outcome <- err
		return
	}
	if r == nil {
		s.status.take(l.Report())
		s.enter(Configuring)
	}
	go func() {
		defer l.cancel()
		err := s.bring(ctx, l)
		span.End(err)
		l.outcome <- err
	}()
}

// traced runs one step of a start as a span.
func traced(ctx context.Context, name string, run func(context.Context) error) error {
	ctx, span := trace.Start(ctx, name, trace.Internal)
	err := run(ctx)
	span.End(err)
	return err
}

// abandon gives up the life on its way to ready.
func (s *Provider) abandon() {
	l := s.coming
	if l == nil {
		return
	}
	s.coming = nil
	l.cancel()
	if l.instance != nil {
		s.dismiss(l, func() { <-l.outcome }) //nolint:errcheck // no longer of interest
	}
	if l.reload != nil {
		s.drop(l.plan)
		l.reload.reply <- errSuperseded
	}
}

// bring makes the life ready for calls or returns why it cannot.
func (s *Provider) bring(ctx context.Context, l *life) error {
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
func (s *Provider) tellFirst(err error) {
	select {
	case s.first <- err:
	default: // Start has its answer
	}
}
