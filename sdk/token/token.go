// Package token is where the credential comes from that travels with a request: a
// [File], read anew for each, or a [Static] one. The method Token of either is what
// secret.Authority takes.
package token

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Static is a source that always has the same token.
type Static struct {
	Value ca.Token
}

// Token returns the value.
func (s Static) Token(context.Context) (ca.Token, error) { return s.Value, nil }
