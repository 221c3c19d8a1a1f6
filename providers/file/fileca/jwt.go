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
	if err := c.limits.checkSVID(req.SubjectID, req.TTL); err != nil {
		return "", err
	}
	if len(req.Audiences) == 0 {
		return "", ca.Errorf(ca.Invalid, "the request has no audience")
	}
	now := c.now()
	return c.jwt.sign(ctx, now, "JWT", jwtClaims{
		Subject: req.SubjectID, Audience: req.Audiences, IssuedAt: now.Unix(), Expiry: now.Add(min(req.TTL, maxJWTLife)).Unix(),
	})
}

// checkSVID checks the subject and the lifetime of a request.
func (l limits) checkSVID(subject string, ttl time.Duration) error {
	id, err := pki.ParseSPIFFEID(subject)
	switch {
	case err != nil:
		return ca.Errorf(ca.Invalid, "subject: %w", err)
	case l.trustDomain != "" && id.Host != l.trustDomain:
		return ca.Errorf(ca.Denied, "%.256q is outside the trust domain %q", subject, l.trustDomain)
	case ttl < minTTL:
		return ca.Errorf(ca.Invalid, "requested lifetime %s is less than %s", ttl, minTTL)
	}
	return nil
}

type jwtClaims struct {
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`
	Expiry   int64    `json:"exp"`
	IssuedAt int64    `json:"iat"`
}

// sign signs claims with the key that signs at now, as a token of this type.
func (k *svidKeys) sign(ctx context.Context, now time.Time, typ jose.ContentType, claims any) (ca.Token, error) {
	keys, _, _, err := k.current(ctx)
	if err != nil {
		return "", err
	}
	token, err := keys.signer(now).sign(typ, claims)
	if err != nil {
		return "", ca.Errorf(ca.Internal, "failed to sign one of the %s: %w", k.name, err)
	}
	return token, nil
}

func (k jwtKey) sign(typ jose.ContentType, claims any) (ca.Token, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k.key, KeyID: k.ID}}, (&jose.SignerOptions{}).WithType(typ))
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
	return c.watchKeys(ctx, c.jwt, changed)
}

func (c *CA) watchKeys(ctx context.Context, keys *svidKeys, changed func(jwks []byte) error) error {
	var told []byte
	for {
		_, jwks, left, err := keys.current(ctx)
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
