package token

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// The types of tokens that are most common (RFC 8693, section 3).
const (
	TypeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	TypeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
)

// Exchanged is a source whose tokens are those of another one, exchanged. It is the
// Source of a further one where exchanges are chained.
type Exchanged struct {
	Source Source
	Cache  *Cache
	// Request is what is asked for, without the token. Its SubjectTokenType has the
	// default [TypeJWT].
	Request ca.TokenRequest
}

// Token reads the source and exchanges what that has. No token stays none. An error is
// that of the source, or of the exchange.
func (e Exchanged) Token(ctx context.Context) (ca.Bearer, error) {
	subject, err := e.Source.Token(ctx)
	if err != nil || subject.Token == "" {
		return subject, err
	}
	req := e.Request
	req.SubjectToken = subject.Token
	if req.SubjectTokenType == "" {
		req.SubjectTokenType = TypeJWT
	}
	got, err := e.Cache.ExchangeToken(ctx, req)
	if err != nil {
		return ca.Bearer{}, fmt.Errorf("exchange the token: %w", err)
	}
	return ca.Bearer{Token: got.AccessToken, Expiry: got.Expiry}, nil
}

// Rejected forgets the token, and has the source forget what it was exchanged for.
func (e Exchanged) Rejected(t ca.Token) {
	if subject, ok := e.Cache.drop(t); ok {
		rejected(e.Source, subject)
	}
}
