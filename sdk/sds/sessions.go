package sds

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Sessions separates the streams of a socket, each with its own credential.
// [identities.Set] implements it.
type Sessions interface {
	// Join admits a stream or fetch of an admitted peer with its bearer token, which
	// may be empty, and returns the caller to look its secrets up with. That caller
	// holds neither the token nor anything that reveals it. An error is from package
	// ca; its text is shown to the client.
	Join(ctx context.Context, peer secret.Caller, token ca.Token) (secret.Caller, error)
	// Leave is called once when a call admitted by Join ends: for a stream, before its client
	// can see the status.
	Leave(caller secret.Caller)
}

// callerKey is the context key of a stream's membership.
type callerKey struct{}

// membership is a stream's place among the sessions.
type membership struct {
	caller secret.Caller
	leave  func() // may be called twice
}

func membershipOf(ctx context.Context) *membership {
	of, _ := ctx.Value(callerKey{}).(*membership)
	return of
}

// ended leaves for a stream whose handler still runs.
func ended(ctx context.Context) {
	if of := membershipOf(ctx); of != nil {
		of.leave()
	}
}

// stream is a stream whose caller is already known.
type stream[Q, R any] struct {
	xds.Stream[Q, R]
	ctx context.Context
}

// Context returns the stream's context with the caller.
func (s stream[Q, R]) Context() context.Context { return s.ctx }

// serveStream serves a stream under its session's caller.
func serveStream[Q, R any](s *Service, on xds.Stream[Q, R], serve func(xds.Stream[Q, R], string) error) error {
	if s.sessions == nil {
		return serve(on, TypeURL)
	}
	ctx, err := s.join(on.Context())
	if err != nil {
		return err
	}
	defer membershipOf(ctx).leave()
	return serve(stream[Q, R]{on, ctx}, TypeURL)
}

// join admits a call and returns its context with the membership.
func (s *Service) join(ctx context.Context) (context.Context, error) {
	peer, err := s.admitPeer(ctx)
	if err != nil {
		return nil, err
	}
	token, err := bearer(ctx, s.headers)
	if err != nil {
		return nil, statusOf(err)
	}
	caller, err := s.sessions.Join(ctx, peer, token)
	if err != nil {
		return nil, statusOf(err)
	}
	return context.WithValue(ctx, callerKey{}, &membership{caller, sync.OnceFunc(func() { s.sessions.Leave(caller) })}), nil
}

// admit returns the caller of a joined stream, or the peer if there are no sessions. It
// checks the policy again because that may have changed.
func (s *Service) admit(ctx context.Context) (secret.Caller, error) {
	peer, err := s.admitPeer(ctx)
	if of := membershipOf(ctx); of != nil && err == nil {
		return of.caller, nil
	}
	return peer, err
}

// statusOf returns the stream's final status for an error of package ca.
func statusOf(err error) error {
	code := codes.Unavailable
	switch ca.ReasonFor(err) {
	case ca.Unauthenticated:
		code = codes.Unauthenticated
	case ca.Denied, ca.Invalid:
		code = codes.PermissionDenied
	case ca.RateLimited:
		code = codes.ResourceExhausted
	case ca.Canceled:
		code = codes.Canceled
	}
	said := err.Error()
	if known, ok := errors.AsType[*ca.Error](err); ok {
		said = known.Error() // without the wrapping added on the way
	}
	return status.Error(code, text.Clean(said))
}
