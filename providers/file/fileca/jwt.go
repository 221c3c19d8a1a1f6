package fileca

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// jwtLook is the longest interval between looks at the clock while the keys are watched.
const jwtLook = 30 * time.Second

// SignJWT implements [ca.JWTSigner], with ES256 and a key of its own in the folder, which must be
// this user's. A token lives for an hour at most. Another trust domain than the configured one
// is [ca.Denied].
func (c *CA) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	id, err := pki.ParseSPIFFEID(req.SubjectID)
	switch {
	case err != nil:
		return "", ca.Errorf(ca.Invalid, "subject: %w", err)
	case c.limits.trustDomain != "" && id.Host != c.limits.trustDomain:
		return "", ca.Errorf(ca.Denied, "%.256q is outside the trust domain %q", req.SubjectID, c.limits.trustDomain)
	case len(req.Audiences) == 0:
		return "", ca.Errorf(ca.Invalid, "the request has no audience")
	case req.TTL < minTTL:
		return "", ca.Errorf(ca.Invalid, "requested lifetime %s is less than %s", req.TTL, minTTL)
	}
	keys, _, _, err := c.jwt.current(ctx)
	if err != nil {
		return "", err
	}
	now := c.now()
	token, err := keys.signer(now).sign(jwtClaims{
		Subject: req.SubjectID, Audience: req.Audiences, IssuedAt: now.Unix(), Expiry: now.Add(min(req.TTL, maxJWTLife)).Unix(),
	})
	if err != nil {
		return "", ca.Errorf(ca.Internal, "sign a JWT-SVID: %w", err)
	}
	return token, nil
}

type jwtClaims struct {
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`
	Expiry   int64    `json:"exp"`
	IssuedAt int64    `json:"iat"`
}

func (k jwtKey) sign(claims jwtClaims) (ca.Token, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k.key, KeyID: k.ID}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	text, err := signed.CompactSerialize()
	return ca.Token(text), err
}

// WatchJWTKeys implements [ca.JWTSigner]. It returns [ca.Unavailable] after [CA.Close].
func (c *CA) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	var told []byte
	for {
		_, jwks, left, err := c.jwt.current(ctx)
		if err != nil {
			return err
		}
		if !bytes.Equal(jwks, told) {
			if err := changed(bytes.Clone(jwks)); err != nil {
				return err
			}
			told = jwks
		}
		select {
		case <-time.After(min(left, jwtLook)):
		case <-ctx.Done():
			return ctx.Err()
		case <-c.over:
			return ca.Errorf(ca.Unavailable, "the CA of %s is closed", c.dir)
		}
	}
}
