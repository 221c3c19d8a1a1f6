package workloadapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// stream is the stream of one caller. gRPC's handler goroutine runs it.
type stream struct {
	caller  secret.Caller
	changed chan struct{} // capacity one: changes close together count as one
	ended   chan error    // capacity one: the status with which the service ends it
}

func newStream(caller secret.Caller) *stream {
	return &stream{caller: caller, changed: make(chan struct{}, 1), ended: make(chan error, 1)}
}

// follow sends the caller's view, and again whenever its version changes, until the
// caller leaves or nothing is configured for it any more. The first time waits until the view is
// whole, but not beyond the startup.
func (s *Service) follow(ctx context.Context, version func(view) string, whole func(view) bool, send func(view) error) error {
	return s.attach(ctx, func(st *stream) error { return s.serve(ctx, st, s.look, version, whole, send) })
}

// attach serves a stream of the caller, which each change of a secret wakes.
func (s *Service) attach(ctx context.Context, serve func(*stream) error) error {
	before := s.ends.Load()
	caller, err := s.caller(ctx)
	if err != nil {
		return err
	}
	st := newStream(caller)
	if err := s.enter(st, before); err != nil {
		return err
	}
	defer s.leave(st)
	unwatch, err := s.watch(st)
	defer unwatch()
	if err != nil {
		return err
	}
	return serve(st)
}

// firstWait is how long a stream may wait for its first reply. Clients retry after an error,
// and many have no deadline of their own (SPIFFE Workload Endpoint, section 6).
const firstWait = 5 * time.Second

// serve waits for the first reply, and ends the stream when what was sent has expired without a
// successor: the client keeps it, and learns from the error that it is alone with that.
func (s *Service) serve(ctx context.Context, st *stream, look func(secret.Caller) (view, error), version func(view) string, whole func(view) bool, send func(view) error) error {
	sent, late := "", time.Now().Add(firstWait)
	for {
		v, err := look(st.caller)
		if err != nil {
			return err
		}
		now, until := version(v), late
		switch rest := s.startup.Left(); {
		case now == "" && (sent != "" || !time.Now().Before(late)):
			return errNothing
		case now != "" && sent == "" && rest > 0 && !whole(v):
			until = time.Now().Add(rest)
		case now != "" && now != sent:
			if err := send(v); err != nil {
				return err
			}
			sent = now
		}
		if sent != "" {
			until = v.ends
		}
		if err := st.wait(ctx, until, s.now); err != nil {
			return err
		}
	}
}

// wallLook is how often a waiting stream looks at the wall clock: its timer stands still in a suspend.
const wallLook = 30 * time.Second

// wait returns nil when the view must be looked at again: after a change, or at a time
// unless that has passed before.
func (st *stream) wait(ctx context.Context, until time.Time, now func() time.Time) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	timed := false
	for {
		left := until.Sub(now())
		if timer.Stop(); left > 0 {
			timer.Reset(min(left, wallLook))
		} else if timed {
			return nil
		}
		select {
		case <-timer.C:
			timed = true
		case <-st.changed:
			return nil
		case err := <-st.ended:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// watch wakes the stream after each change of an offered secret or of the keys of tokens.
func (s *Service) watch(st *stream) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	if s.offer.JWT != nil {
		stops = append(stops, s.offer.JWT.Watch(func() { st.wake("") }))
	}
	if s.offer.FederatedJWT != nil {
		stops = append(stops, s.offer.FederatedJWT.Watch(func() { st.wake("") }))
	}
	if s.offer.WIT != nil {
		stops = append(stops, s.offer.WIT.Watch(func() { st.wake("") }))
	}
	if s.offer.FederatedWIT != nil {
		stops = append(stops, s.offer.FederatedWIT.Watch(func() { st.wake("") }))
	}
	for _, name := range s.names {
		one, err := s.secrets.Watch(st.caller, name, st.wake)
		switch {
		case err == nil:
			stops = append(stops, one)
		case !errors.Is(err, secret.ErrUnknown):
			return stop, status.Error(codes.Unavailable, "secrets are not to be had at the moment")
		}
	}
	return stop, nil
}

func (st *stream) wake(string) {
	select {
	case st.changed <- struct{}{}:
	default: // a notification is already pending
	}
}

// end ends the stream with err unless it is already ending.
func (st *stream) end(err error) {
	select {
	case st.ended <- err:
	default:
	}
}

// enter registers the stream unless End was called since before: the admission may be
// out of date.
func (s *Service) enter(st *stream, before int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ends.Load() != before {
		return errClosing
	}
	s.streams[st] = struct{}{}
	return nil
}

func (s *Service) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

// Streams returns how many streams are open.
func (s *Service) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// End ends the streams of matching callers with a status error and returns how many.
func (s *Service) End(match func(secret.Caller) bool, err error) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends.Add(1)
	n := 0
	for st := range s.streams {
		if match(st.caller) {
			st.end(err)
			n++
		}
	}
	return n
}

// Close ends all streams with Unavailable and refuses new ones.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.End(func(secret.Caller) bool { return true }, errClosing)
}

var errClosing = status.Error(codes.Unavailable, "the service is ending or its policy has changed; come again")

// errNothing asks the client to come again, as the standard does where nothing can be served.
var errNothing = status.Error(codes.Unavailable, "no valid certificate or trust bundle is held at the moment; try again")
