package authn

import (
	"context"
	"errors"
	"log/slog"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Ordered asks one authenticator after the other; the first that knows the caller
// wins. One that refuses does not end the search: a caller with an expired
// certificate and a good token is who the token says. The error is a [*UnknownCallerError].
type Ordered []Named

// Named is an authenticator with the name that it has in a log.
type Named struct {
	Name          string
	Authenticator Authenticator
}

// Authenticate asks each, in order.
func (o Ordered) Authenticate(ctx context.Context, c Credential) (Identity, error) {
	refusal := &UnknownCallerError{outcome: ErrNotMine}
	for _, each := range o {
		id, err := each.Authenticator.Authenticate(ctx, c)
		if err == nil && id.String() == "" {
			err = Errorf(ErrRefused, "it names nobody")
		}
		if err == nil {
			return id, nil
		}
		refusal.add(each.Name, err, c.Token)
	}
	return Identity{}, refusal
}

// UnknownCallerError is why nobody knows a caller. Its text is one sentence, the same whatever
// the reasons are, and fit for the caller; a [slog.Logger] is told the reasons. It
// wraps [ErrUnavailable] where somebody could not tell, else [ErrRefused] where
// somebody has refused, else [ErrNotMine].
type UnknownCallerError struct {
	// Reasons has one entry for each authenticator, in their order.
	Reasons []Reason
	outcome error
}

// Reason is what one authenticator said, at most 256 bytes of it, with the token
// replaced.
type Reason struct {
	Name, Text string
}

func (r *UnknownCallerError) add(name string, err error, token ca.Token) {
	r.Reasons = append(r.Reasons, Reason{name, text.Redact(err.Error(), token)})
	switch {
	case errors.Is(err, ErrUnavailable):
		r.outcome = ErrUnavailable
	case !errors.Is(err, ErrNotMine) && r.outcome == ErrNotMine: //nolint:errorlint // it is one of the three themselves
		r.outcome = ErrRefused
	}
}

// Error tells the caller nothing about why.
func (*UnknownCallerError) Error() string { return "the caller could not be authenticated" }

// Unwrap returns one of the three outcomes.
func (r *UnknownCallerError) Unwrap() error { return r.outcome }

// LogValue returns the reasons by the authenticators' names.
func (r *UnknownCallerError) LogValue() slog.Value {
	reasons := make([]slog.Attr, len(r.Reasons))
	for i, reason := range r.Reasons {
		reasons[i] = slog.String(reason.Name, reason.Text)
	}
	return slog.GroupValue(reasons...)
}

// Clusters chooses who verifies a token by the cluster that the credential names,
// which is empty where it names none. It returns nil for a cluster that nobody
// knows; the caller is refused then.
type Clusters func(cluster string) Authenticator

// Authenticate asks the authenticator of the credential's cluster.
func (f Clusters) Authenticate(ctx context.Context, c Credential) (Identity, error) {
	if c.Token == "" {
		return Identity{}, ErrNotMine
	}
	chosen := f(c.Cluster)
	if chosen == nil {
		return Identity{}, Errorf(ErrRefused, "the cluster %.256q is not known here", c.Cluster)
	}
	return chosen.Authenticate(ctx, c)
}
