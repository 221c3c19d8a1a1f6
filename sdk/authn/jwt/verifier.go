package jwt

import (
	"context"
	"encoding/base64"
	stdjson "encoding/json"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// A projected Kubernetes token takes 1 to 2 KiB.
const maxToken = 16 << 10

// Verifier verifies the tokens of one issuer. It is safe for concurrent use and has a
// goroutine only while it fetches keys, at most 10 seconds.
type Verifier struct {
	cfg        Config
	template   authn.Template
	algorithms []jose.SignatureAlgorithm
	keys       *keys
}

var _ authn.Authenticator = (*Verifier)(nil)

// Authenticate verifies the token. A token of another issuer, or one that is not a JWT, is
// [authn.ErrNotMine] and triggers no key lookup. The identity expires at the claim exp
// plus the leeway.
func (v *Verifier) Authenticate(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	switch {
	case c.Token == "":
		return authn.Identity{}, authn.ErrNotMine
	case len(c.Token) > maxToken:
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the token has %d bytes, %d are allowed", len(c.Token), maxToken)
	}
	if err := v.isMine(c.Token); err != nil {
		return authn.Identity{}, err
	}
	payload, err := v.verified(ctx, c.Token)
	if err != nil {
		return authn.Identity{}, err
	}
	return v.identity(payload)
}

// isMine checks the claim iss, still unverified: it selects the verifier and is checked
// again after verification.
func (v *Verifier) isMine(token ca.Token) error {
	parts := strings.Split(token.Reveal(), ".")
	// The base64 decoder skips line breaks.
	if len(parts) != 3 || strings.ContainsAny(token.Reveal(), "\r\n") {
		return authn.Errorf(authn.ErrNotMine, "the token is not a JWT of three parts")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return authn.Errorf(authn.ErrNotMine, "the token is not a JWT")
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if stdjson.Unmarshal(payload, &claims) != nil {
		return authn.Errorf(authn.ErrNotMine, "the token's claims are not JSON")
	}
	if claims.Issuer != v.cfg.Issuer {
		return authn.Errorf(authn.ErrNotMine, "the token's issuer is %.256q, not %q", claims.Issuer, v.cfg.Issuer)
	}
	return nil
}

// verified returns the claims of a token signed by one of the issuer's keys.
func (v *Verifier) verified(ctx context.Context, token ca.Token) ([]byte, error) {
	parsed, err := jws.Parse(token.Reveal(), v.algorithms)
	if err != nil {
		return nil, authn.Errorf(authn.ErrRefused, "%w", err)
	}
	candidates, err := v.keys.find(ctx, parsed.KeyID, parsed.Algorithm)
	if err != nil {
		return nil, err
	}
	payload, err := parsed.Payload(candidates)
	if err != nil {
		return nil, authn.Errorf(authn.ErrRefused, "%w", err)
	}
	return payload, nil
}
