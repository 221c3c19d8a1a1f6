package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// What a provider must withstand.
const (
	promptness = 250 * time.Millisecond
	crowd      = 64 // concurrent calls
	fewest     = 16 // of them, on a machine that stands still
)

func faultChecks() []Check {
	good := []string{"SIGN-01", "SIGN-04", "SIGN-20"}
	return []Check{
		{"FAULT-01", Behaviour, "64 concurrent requests are all signed, each for its own key.", "An agent on a node requests certificates for many workloads at once.", good, manyAtOnce},
		{"FAULT-02", Behaviour, "A call ends within 250 ms after its caller has cancelled it.", "Otherwise abandoned calls pile up behind a CA that hangs.", good, cancelledEnds},
		{"FAULT-03", Behaviour, "A call that ran out of time returns cancelled, deadline exceeded or unavailable, not a refusal.", "After a refusal, the host does not retry for minutes.", good, lateIsNoRefusal},
		{"FAULT-04", Behaviour, "Settings replaced while requests are being signed fail none of them.", "The host reloads under load.", []string{"SIGN-20", "SET-17"}, replacedWhileSigning},
		{"FAULT-05", Behaviour, "After 128 cancelled calls it signs as before.", "A call must release its resources however it ends.", []string{"SIGN-20"}, givenUpThenGood},
	}
}

func manyAtOnce(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	for n := s.crowd; ; n /= 2 {
		stood := s.stalls()
		err := together(ctx, n, func() (sending, error) { return s.signing(i) })
		// A machine that stands still may take longer for all of them than one call has.
		if late := stood(); !late || ca.ReasonFor(err) != ca.Deadline || n <= fewest {
			return err
		}
	}
}

func cancelledEnds(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	if i.Conn != nil && i.Busy == nil {
		return NotRun("a process does not show how long a cancelled call keeps running")
	}
	for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		// An attempt shows nothing if the call had not begun or was over when it was cancelled.
		if err := thrice(func() error { return s.cancelled(ctx, i, after) }); err != nil {
			return err
		}
	}
	return nil
}

// cancelled cancels a call and waits for its end on both sides of the boundary.
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
		_, _ = i.CSRSign(calling, req) // another check covers the result
	}()
	select {
	case <-over:
	case <-time.After(after):
	}
	cancel()
	control := func() { _ = s.SignOnce(ctx, i) } // another check covers whether it signs
	if !inTime(promptness, control, i.ended(over)) {
		return fmt.Errorf("cancelled after %s, it was still running %s later", after, promptness)
	}
	return nil
}

// ended reports whether a cancelled call has ended on both sides of the boundary.
func (i *Instance) ended(over <-chan struct{}) func() bool {
	return func() bool { return closed(over) && (i.Busy == nil || i.Busy() == 0) }
}

func lateIsNoRefusal(ctx context.Context, s *Session) error {
	i, err := s.Ready()
	if err != nil {
		return err
	}
	if i.Conn != nil {
		return NotRun("over the boundary the caller's own deadline answers first")
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
	err = together(ctx, 8, func() (sending, error) {
		return func(ctx context.Context) error { return s.signUntil(ctx, i, replaced) }, nil
	})
	<-replaced
	return errors.Join(failed, err)
}

// signUntil signs until the channel closes, and once more.
func (s *Session) signUntil(ctx context.Context, i *Instance, then <-chan struct{}) error {
	for {
		last := closed(then)
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
	_ = together(ctx, s.crowd, func() (sending, error) { // some were signed, some were not
		send, err := s.signing(i)
		return func(ctx context.Context) error {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			return send(short)
		}, err
	})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_ = together(gone, s.crowd, func() (sending, error) { return s.signing(i) })
	return s.SignOnce(ctx, i)
}
