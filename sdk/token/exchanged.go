package token

import (
	"cmp"
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// The most common token types (RFC 8693, section 3).
const (
	TypeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	TypeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
)

// Exchanged is a source that exchanges another source's tokens. To chain exchanges, use it
// as the Source of another Exchanged. Source and Cache are required.
type Exchanged struct {
	Source Source
	Cache  *Cache
	// Request describes the exchange without the token. Its SubjectTokenType defaults to
	// [TypeJWT].
	Request ca.TokenRequest
}

// Token reads the source and exchanges its token. An empty token stays empty. An error
// comes from the source or from the exchange.
func (e Exchanged) Token(ctx context.Context) (ca.Bearer, error) {
	if e.Source == nil || e.Cache == nil {
		return ca.Bearer{}, ca.Errorf(ca.Unavailable, "token exchange: Source and Cache are required")
	}
	subject, err := e.Source.Token(ctx)
	if err != nil || subject.Token == "" {
		return subject, err
	}
	req := e.Request
	req.SubjectToken = subject.Token
	req.SubjectTokenType = cmp.Or(req.SubjectTokenType, TypeJWT)
	got, err := e.Cache.ExchangeToken(ctx, req)
	if err != nil {
		return ca.Bearer{}, fmt.Errorf("exchange the token: %w", err)
	}
	return ca.Bearer{Token: got.AccessToken, Expiry: got.Expiry}, nil
}

// Rejected drops the token and has the source drop the one it was exchanged for.
func (e Exchanged) Rejected(t ca.Token) {
	if subject, ok := e.Cache.drop(t); ok {
		rejected(e.Source, subject)
	}
}
