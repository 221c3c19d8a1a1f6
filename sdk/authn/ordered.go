package authn

import (
	"context"
	"errors"
	"log/slog"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Ordered tries authenticators in order; the first success wins. A refusal does not end
// the search: a caller with an expired certificate and a valid token is identified by
// the token. The error is a [*UnknownCallerError].
type Ordered []Named

// Named is an authenticator with its name for logs.
type Named struct {
	Name          string
	Authenticator Authenticator
}

// Authenticate tries each authenticator in order.
func (o Ordered) Authenticate(ctx context.Context, c Credential) (Identity, error) {
	refusal := &UnknownCallerError{outcome: ErrNotMine}
	for _, each := range o {
		id, err := each.Authenticator.Authenticate(ctx, c)
		if err == nil && id.String() == "" {
			err = Errorf(ErrRefused, "the authenticator returned no identity")
		}
		if err == nil {
			return id, nil
		}
		refusal.add(each.Name, err, c.Token)
	}
	return Identity{}, refusal
}

// UnknownCallerError means that no authenticator identified a caller. Its text is the
// same whatever the reasons and safe to show to the caller; a [slog.Logger] receives
// the reasons. It wraps [ErrUnavailable] if any authenticator was unavailable, else
// [ErrRefused] if any refused, else [ErrNotMine].
type UnknownCallerError struct {
	// Reasons has one entry per authenticator, in order.
	Reasons []Reason
	outcome error
}

// Reason is the error of one authenticator, at most 256 bytes, with the token replaced.
type Reason struct {
	Name, Text string
}

func (r *UnknownCallerError) add(name string, err error, token ca.Token) {
	r.Reasons = append(r.Reasons, Reason{name, text.Redact(err.Error(), token)})
	switch {
	case errors.Is(err, ErrUnavailable):
		r.outcome = ErrUnavailable
	case !errors.Is(err, ErrNotMine) && r.outcome == ErrNotMine: //nolint:errorlint // one of the three sentinels
		r.outcome = ErrRefused
	}
}

// Error returns a fixed text that reveals no reason to the caller.
func (*UnknownCallerError) Error() string { return "the caller could not be authenticated" }

// Unwrap returns one of the three outcomes.
func (r *UnknownCallerError) Unwrap() error { return r.outcome }

// LogValue returns the reasons keyed by authenticator name.
func (r *UnknownCallerError) LogValue() slog.Value {
	reasons := make([]slog.Attr, len(r.Reasons))
	for i, reason := range r.Reasons {
		reasons[i] = slog.String(reason.Name, reason.Text)
	}
	return slog.GroupValue(reasons...)
}

// Clusters returns the authenticator for the cluster a credential names, which may be
// empty, or nil for an unknown cluster, whose callers are refused.
type Clusters func(cluster string) Authenticator

// Authenticate calls the authenticator of the credential's cluster.
func (f Clusters) Authenticate(ctx context.Context, c Credential) (Identity, error) {
	if c.Token == "" {
		return Identity{}, ErrNotMine
	}
	chosen := f(c.Cluster)
	if chosen == nil {
		return Identity{}, Errorf(ErrRefused, "unknown cluster %.256q", c.Cluster)
	}
	return chosen.Authenticate(ctx, c)
}
