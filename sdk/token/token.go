// Package token provides the bearer credential for requests to an authority. Sources are a
// [File], an environment variable ([Env]), Google's [Metadata] server, a [Command] or a
// [Static] value. [Ordered] combines several; [Exchanged] exchanges their tokens through a
// [Cache]. The Token method of each fits secret.Authority. Give each authority its own
// source, so that no token reaches another authority. Only [Cache] has state, guarded by a
// lock.
package token

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Source returns tokens. It is safe for concurrent use.
//
// A source that caches tokens also has the method Rejected(ca.Token). It receives a token
// that the authority rejected, and drops it.
type Source interface {
	// Token returns the token to use now, or an empty one if none is needed. The token may
	// have expired: [Ordered] skips those. An error is (or wraps) a [ca.Error], names the
	// source, and never shows the token.
	Token(ctx context.Context) (ca.Bearer, error)
}

// Static is a source with a fixed token, such as one that a client sent on its stream.
type Static struct {
	Value ca.Token
}

// Token returns the value.
func (s Static) Token(context.Context) (ca.Bearer, error) { return bearer(s.Value), nil }
