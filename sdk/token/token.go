// Package token is where the credential comes from that travels with a request: a
// [File], a variable ([Env]), Google's [Metadata] server, a [Command] or a [Static]
// one; several in order ([Ordered]); and what a token is [Exchanged] for, kept in a
// [Cache]. The method Token of any of them is what secret.Authority takes. A source
// is one authority's: nothing carries its token to another.
package token

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Source is where tokens come from. It is safe for concurrent use.
//
// A source that remembers tokens has the method Rejected(ca.Token), too: it is told
// of one that was not accepted, and forgets it.
type Source interface {
	// Token returns the token to use now, or an empty one where none is needed. It
	// may have expired: [Ordered] passes over those. An error is (or wraps) a
	// [ca.Error], names the source, and never shows the token.
	Token(ctx context.Context) (ca.Bearer, error)
}

// Static is a source that always has the same token, as the one that a client sent
// on its stream.
type Static struct {
	Value ca.Token
}

// Token returns the value.
func (s Static) Token(context.Context) (ca.Bearer, error) { return bearer(s.Value), nil }
