package sds

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Sessions knows the streams of a socket apart, each by a credential of its own. The
// [identities.Set] is one.
type Sessions interface {
	// Join takes in a stream or fetch of an admitted peer, with its bearer token, which
	// may be empty, and returns the caller that its secrets are asked for with. The
	// caller keeps neither the token nor anything that shows it. An error is of package
	// ca, and its text is for the client to see.
	Join(ctx context.Context, peer secret.Caller, token ca.Token) (secret.Caller, error)
	// Leave is told when what Join took in has ended.
	Leave(caller secret.Caller)
}

// callerKey is where the context of a stream has its caller.
type callerKey struct{}

// stream is one whose caller is known already.
type stream[Q, R any] struct {
	xds.Stream[Q, R]
	ctx context.Context
}

// Context returns the stream's own, with the caller.
func (s stream[Q, R]) Context() context.Context { return s.ctx }

// serveStream serves a stream as that of the session that it belongs to.
func serveStream[Q, R any](s *Service, on xds.Stream[Q, R], serve func(xds.Stream[Q, R], string) error) error {
	if s.sessions == nil {
		return serve(on, TypeURL)
	}
	ctx, caller, err := s.join(on.Context())
	if err != nil {
		return err
	}
	defer s.sessions.Leave(caller)
	return serve(stream[Q, R]{on, ctx}, TypeURL)
}

// join takes a call in and returns its context with the caller.
func (s *Service) join(ctx context.Context) (context.Context, secret.Caller, error) {
	peer, err := s.admitPeer(ctx)
	if err != nil {
		return nil, secret.Caller{}, err
	}
	token, err := bearer(ctx, s.headers)
	if err != nil {
		return nil, secret.Caller{}, statusOf(err)
	}
	caller, err := s.sessions.Join(ctx, peer, token)
	if err != nil {
		return nil, secret.Caller{}, statusOf(err)
	}
	return context.WithValue(ctx, callerKey{}, caller), caller, nil
}

// admit returns the caller of a stream that has joined, or the peer where streams are
// not told apart. The policy is asked again: it may have changed since.
func (s *Service) admit(ctx context.Context) (secret.Caller, error) {
	peer, err := s.admitPeer(ctx)
	if caller, ok := ctx.Value(callerKey{}).(secret.Caller); ok && err == nil {
		return caller, nil
	}
	return peer, err
}

// statusOf returns what a stream ends with for an error of package ca.
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
		said = known.Error() // without what was said around it on the way
	}
	return status.Error(code, text.Clean(said))
}
