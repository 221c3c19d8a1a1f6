package conformance

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func (a *authority) goodWIT(_ context.Context, req ca.WITRequest) (ca.Token, error) {
	if err := wire.CheckWITRequest(req); err != nil {
		return "", err
	}
	return a.uncheckedWIT(req)
}

// uncheckedWIT confirms whatever the request has.
func (a *authority) uncheckedWIT(req ca.WITRequest) (ca.Token, error) {
	switch {
	case req.Token != goodToken:
		return "", provider.Errorf(provider.Unauthenticated, "the token is not taken")
	case strings.Contains(req.SubjectID, "stranger"):
		return "", provider.Errorf(provider.Denied, "%s is not for you", req.SubjectID)
	}
	return a.witBy(witSigningKey(), "good-wit", "wit+jwt", req)
}

func (a *authority) witBy(key *ecdsa.PrivateKey, kid string, typ jose.ContentType, req ca.WITRequest) (ca.Token, error) {
	now := time.Now()
	claims := map[string]any{
		"sub": req.SubjectID, "exp": now.Add(req.TTL).Unix(), "iat": now.Unix(), "cnf": map[string]any{"jwk": json.RawMessage(req.PublicKey)},
	}
	a.confirms(claims)
	return svidBy(key, kid, typ, claims)
}

func goodWITKeys(kids ...string) []byte { return jwksOf(witSigningKey(), "wit-svid", kids...) }

// changedWIT replaces parts of the good authority.
func changedWIT(change func(*authority)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, change)
}

// confirming has the claims of WIT-SVIDs changed.
func confirming(change func(map[string]any)) func() wire.Provider {
	return changedWIT(func(a *authority) { a.confirms = change })
}

// signingWITs replaces the answer of the good authority.
func signingWITs(change func(a *authority, req ca.WITRequest, token ca.Token, err error) (ca.Token, error)) func() wire.Provider {
	return changedWIT(func(a *authority) {
		a.wit = func(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
			token, err := a.goodWIT(ctx, req)
			return change(a, req, token, err)
		}
	})
}

// signingAs has good requests signed with another header.
func signingAs(kid string, typ jose.ContentType) func() wire.Provider {
	return signingWITs(func(a *authority, req ca.WITRequest, token ca.Token, err error) (ca.Token, error) {
		if err != nil {
			return token, err
		}
		return a.witBy(witSigningKey(), kid, typ, req)
	})
}

func watchingWITKeys(watch watches) func() wire.Provider {
	return changedWIT(func(a *authority) { a.witKeys = watch })
}

// sharing signs WIT-SVIDs with this key, which has this kid.
func sharing(key *ecdsa.PrivateKey, kid string) func() wire.Provider {
	return changedWIT(func(a *authority) {
		a.witKeys = following(jwksOf(key, "wit-svid", kid))
		a.wit = func(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
			if token, err := a.goodWIT(ctx, req); err != nil {
				return token, err
			}
			return a.witBy(key, kid, "wit+jwt", req)
		}
	})
}

func witMutants() map[string]func() wire.Provider {
	full := crowded()
	sending := func(jwks []byte) func() wire.Provider { return watchingWITKeys(following(jwks)) }
	confirmed := func(claims map[string]any) map[string]any { return claims["cnf"].(map[string]any) }
	return map[string]func() wire.Provider{
		"WIT-01": signingWITs(func(_ *authority, _ ca.WITRequest, token ca.Token, err error) (ca.Token, error) {
			if err == nil {
				err = provider.Errorf(provider.Unavailable, "the CA is away")
			}
			return token, err
		}),
		"WIT-02":            sending([]byte(`{"keys":[]}`)),
		"WIT-02/twice":      sending(goodWITKeys("good-wit", "good-wit")),
		"WIT-02/no-kid":     sending(bytes.ReplaceAll(goodWITKeys("good-wit"), []byte(`"kid":"good-wit",`), nil)),
		"WIT-02/no-use":     sending(bytes.ReplaceAll(goodWITKeys("good-wit"), []byte(`"use":"wit-svid",`), nil)),
		"WIT-02/one-of-jwt": sending(bytes.Replace(goodWITKeys("good-wit", "other"), []byte(`"use":"wit-svid"`), []byte(`"use":"jwt-svid"`), 1)),
		"WIT-03":            sending(goodWITKeys("other")),
		"WIT-03/no-kid":     signingAs("", "wit+jwt"),
		"WIT-04":            signingAs("good-wit", "JWT"),
		"WIT-05":            confirming(func(c map[string]any) { c["sub"] = "spiffe://example.org/admin" }),
		"WIT-06":            confirming(func(c map[string]any) { delete(c, "cnf") }),
		"WIT-06/other": confirming(func(c map[string]any) {
			confirmed(c)["jwk"] = jose.JSONWebKey{Key: jwtKey().Public(), Algorithm: "ES256"}
		}),
		"WIT-06/no-alg":  confirming(func(c map[string]any) { confirmed(c)["jwk"] = jose.JSONWebKey{Key: jwtKey().Public()} }),
		"WIT-06/further": confirming(func(c map[string]any) { confirmed(c)["jku"] = "https://example.org/" }),
		"WIT-07":         confirming(func(c map[string]any) { c["aud"] = "queue" }),
		"WIT-08":         confirming(func(c map[string]any) { c["exp"] = time.Now().Add(time.Hour).Unix() }),
		"WIT-08/none":    confirming(func(c map[string]any) { delete(c, "exp") }),
		"WIT-09":         confirming(func(c map[string]any) { c["nbf"] = time.Now().Add(2 * time.Minute).Unix() }),
		"WIT-10": changedWIT(func(a *authority) {
			a.wit = func(_ context.Context, req ca.WITRequest) (ca.Token, error) { return a.uncheckedWIT(req) }
		}),
		"WIT-11": signingWITs(func(a *authority, req ca.WITRequest, token ca.Token, err error) (ca.Token, error) {
			if errors.Is(err, ca.ErrDenied) {
				return a.witBy(witSigningKey(), "good-wit", "wit+jwt", req)
			}
			return token, err
		}),
		"WIT-13":     sharing(jwtKey(), "good-wit"),
		"WIT-13/kid": sharing(witSigningKey(), "good"),
		"WIT-14": signingWITs(func(_ *authority, _ ca.WITRequest, token ca.Token, err error) (ca.Token, error) {
			return token, errors.Join(err, full())
		}),
		"WIT-15": watchingWITKeys(func(_ context.Context, changed func([]byte) error) error {
			return errors.Join(changed(goodWITKeys("good-wit")), provider.Errorf(provider.Unavailable, "that is all"))
		}),
		"WIT-15/repeats": watchingWITKeys(repeating(goodWITKeys("good-wit"))),
		"WIT-16":         wrapped(func(o *outer) { o.witKeys = lingering(o) }),
	}
}
