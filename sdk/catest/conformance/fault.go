package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// What a provider has to bear.
const promptness = 250 * time.Millisecond

func faultChecks() []Check {
	good := []string{"SIGN-01", "SIGN-04", "SIGN-20"}
	return []Check{
		{"FAULT-01", Behaviour, "64 requests at once are all signed, each for its own key.", "An agent on a node asks for many workloads at once.", good, manyAtOnce},
		{"FAULT-02", Behaviour, "A call whose caller has gone ends within 250 ms.", "Otherwise calls that nobody waits for pile up behind a CA that hangs.", good, cancelledEnds},
		{"FAULT-03", Behaviour, "A call that ran out of time is no refusal: it is cancelled, late or unavailable.", "After a refusal the host does not ask again for minutes.", good, lateIsNoRefusal},
		{"FAULT-04", Behaviour, "Settings that are replaced while requests are signed fail none of them.", "The host reloads under load.", []string{"SIGN-20", "SET-17"}, replacedWhileSigning},
		{"FAULT-05", Behaviour, "After 128 calls that were given up, it signs as before.", "What a call takes is given back however it ends.", []string{"SIGN-20"}, givenUpThenGood},
	}
}

// together does the same n times at once, and returns the first error.
func together(n int, do func() error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("number %d of %d: %w", i+1, n, err)
		}
	}
	return nil
}

func manyAtOnce(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	return together(s.crowd, func() error { return s.SignOnce(ctx, i) })
}

// prompt lets a provider try three times: a busy machine is not its fault.
func prompt(do func() error) error {
	var err error
	for range 3 {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

func cancelledEnds(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		if err := prompt(func() error { return s.cancelled(ctx, i, after) }); err != nil {
			return err
		}
	}
	return nil
}

// cancelled gives a call up, and waits for its end on both sides of the boundary.
func (s *Session) cancelled(ctx context.Context, i *Instance, after time.Duration) error {
	req, _, err := s.good()
	if err != nil {
		return err
	}
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = i.CSRSign(calling, req) // what comes of it has a check of its own
	}()
	select {
	case <-over:
	case <-time.After(after):
	}
	cancel()
	begin := time.Now()
	<-over
	for i.Busy != nil && i.Busy() > 0 && time.Since(begin) < 8*promptness {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(begin); took > promptness {
		return fmt.Errorf("given up after %s, it went on for %s", after, took.Round(time.Millisecond))
	}
	return nil
}

func lateIsNoRefusal(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	req, _, err := s.good()
	if err != nil {
		return err
	}
	late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	_, err = i.CSRSign(late, req)
	if err != nil && ca.ActionFor(err) != ca.Wait && ca.ActionFor(err) != ca.Drop {
		return fmt.Errorf("it answers %w", err)
	}
	return nil
}

func replacedWhileSigning(ctx context.Context, s *Session) error {
	i, err := s.FreshReady(ctx)
	if err != nil {
		return err
	}
	replaced := make(chan struct{})
	var failed error
	go func() {
		defer close(replaced)
		for range 5 {
			failed = errors.Join(failed, i.Configure(ctx, s.Kit.Settings))
		}
	}()
	err = together(8, func() error { return s.signUntil(ctx, i, replaced) })
	<-replaced
	return errors.Join(failed, err)
}

// signUntil signs until then, and once more.
func (s *Session) signUntil(ctx context.Context, i *Instance, then <-chan struct{}) error {
	for {
		var last bool
		select {
		case <-then:
			last = true
		default:
		}
		if err := s.SignOnce(ctx, i); err != nil || last {
			return err
		}
	}
}

func givenUpThenGood(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	_ = together(s.crowd, func() error { // some were signed, some were not
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		return s.SignOnce(short, i)
	})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_ = together(s.crowd, func() error { return s.SignOnce(gone, i) })
	return s.SignOnce(ctx, i)
}
