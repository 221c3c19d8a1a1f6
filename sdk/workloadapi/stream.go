package workloadapi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// stream is one caller's, from its call until its end. Its goroutine is gRPC's own.
type stream struct {
	caller  secret.Caller
	changed chan struct{} // of one: changes close together are one
	ended   chan error    // of one: the status that the service ends it with
}

// follow sends the caller's view, and again whenever its version has changed, until
// the caller leaves or nothing is configured for it any more.
func (s *Service) follow(ctx context.Context, version func(view) string, send func(view) error) error {
	before := s.ends.Load()
	caller, err := s.caller(ctx)
	if err != nil {
		return err
	}
	st := &stream{caller: caller, changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	if err := s.enter(st, before); err != nil {
		return err
	}
	defer s.leave(st)
	unwatch, err := s.watch(st)
	defer unwatch()
	if err != nil {
		return err
	}
	return s.serve(ctx, st, version, send)
}

func (s *Service) serve(ctx context.Context, st *stream, version func(view) string, send func(view) error) error {
	sent := ""
	for {
		v, err := s.look(st.caller)
		if err != nil {
			return err
		}
		if now := version(v); !v.waits && now != sent {
			if err := send(v); err != nil {
				return err
			}
			sent = now
		}
		select {
		case <-st.changed:
		case err := <-st.ended:
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// watch has the stream woken by each change of what is offered.
func (s *Service) watch(st *stream) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
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
	default: // a notice is waiting already
	}
}

// end has the stream end with err, unless it is ending already.
func (st *stream) end(err error) {
	select {
	case st.ended <- err:
	default:
	}
}

// enter counts the stream in, unless there was an End since before: it may have been
// admitted by what no longer holds.
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

// End ends the streams of the callers that match with a status error, and returns how
// many.
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

// Close ends all streams with Unavailable and refuses later ones.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.End(func(secret.Caller) bool { return true }, errClosing)
}

var errClosing = status.Error(codes.Unavailable, "the service is ending or its policy has changed; come again")
