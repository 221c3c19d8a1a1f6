package fileca

import (
	"context"
	"crypto/rand"
	"encoding/json"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// witClaims are those of a WIT-SVID (standards/WIT-SVID.md, section 3). There is no aud, as the proof
// of possession names who it is for, and no iss: one that OpenID Connect can resolve would have the
// token accepted without a proof (section 3.7).
type witClaims struct {
	Subject   string          `json:"sub"`
	Expiry    int64           `json:"exp"`
	IssuedAt  int64           `json:"iat"`
	NotBefore int64           `json:"nbf"`
	ID        string          `json:"jti"`
	Confirmed witConfirmation `json:"cnf"`
}

type witConfirmation struct {
	Key json.RawMessage `json:"jwk"`
}

// SignWIT implements [ca.WITSigner] as SignJWT does [ca.JWTSigner], with other keys. A request
// that [wire.CheckWITRequest] refuses is [ca.Invalid]. Experimental.
func (c *CA) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	if err := wire.CheckWITRequest(req); err != nil {
		return "", err
	}
	if err := c.limits.checkSVID(req.SubjectID, req.TTL); err != nil {
		return "", err
	}
	now := c.now()
	return c.wit.sign(ctx, now, "wit+jwt", witClaims{
		Subject: req.SubjectID, IssuedAt: now.Unix(), NotBefore: now.Unix(), Expiry: now.Add(min(req.TTL, maxJWTLife)).Unix(),
		ID: rand.Text(), Confirmed: witConfirmation{req.PublicKey},
	})
}

// WatchWITKeys implements [ca.WITSigner]. It returns [ca.Unavailable] after [CA.Close]. Experimental.
func (c *CA) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return c.watchKeys(ctx, c.wit, changed)
}
