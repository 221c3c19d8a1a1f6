package pluginhost

import (
	"context"
	"errors"
)

// errClosing is why a life ends that did nothing wrong.
var errClosing = errors.New("the host closes it")

// attempt is a life on its way from its start to ready.
type attempt struct {
	plan     *plan
	number   int
	reload   *reload  // who asked for it; nil: the supervisor itself
	instance instance // nil where the start failed
	cancel   context.CancelFunc
	outcome  chan error
}

// result is where the outcome of an attempt comes from; of none, nothing comes.
func (a *attempt) result() <-chan error {
	if a == nil {
		return nil
	}
	return a.outcome
}

// begin starts a life of the plan. What becomes of it is a message to run.
func (s *supervisor) begin(p *plan, r *reload) {
	s.number++
	ctx := context.Background()
	if r == nil {
		s.restart = nil
		s.status.Generation = s.number
		s.enter(Starting)
	} else {
		ctx = r.ctx
	}
	a := &attempt{plan: p, number: s.number, reload: r, outcome: make(chan error, 1)}
	ctx, a.cancel = context.WithCancel(ctx)
	s.attempt = a
	i, err := p.launch(s.number)
	if err != nil {
		a.cancel()
		a.outcome <- err
		return
	}
	a.instance = i
	if r == nil {
		i.Describe(&s.status)
		s.enter(Configuring)
	}
	proven := p.proven
	go func() {
		defer a.cancel()
		a.outcome <- s.bring(ctx, a, proven)
	}()
}

// abandon gives up what is on its way.
func (s *supervisor) abandon() {
	a := s.attempt
	if a == nil {
		return
	}
	s.attempt = nil
	a.cancel()
	if a.instance != nil {
		s.dismiss(a.instance, func() { <-a.outcome }) //nolint:errcheck // nobody asks any more
	}
	if a.reload != nil {
		a.reload.reply <- errClosing
	}
}

// bring makes the life ready to be called, or says why it is not.
func (s *supervisor) bring(ctx context.Context, a *attempt, proven bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.instance.Ended(): // makes everything below pointless
			cancel()
		case <-ctx.Done():
		}
	}()
	err := s.prepare(ctx, a, proven)
	if err != nil && ended(a.instance) {
		return a.instance.Err() // says more than the broken call
	}
	return err
}

// tellFirst tells Open, once, how the first life got on.
func (s *supervisor) tellFirst(err error) {
	select {
	case s.first <- err:
	default: // Open has its answer
	}
}
