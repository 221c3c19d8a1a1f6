package conformance

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

var jwtKey, witSigningKey = sync.OnceValue(newSVIDKey), sync.OnceValue(newSVIDKey)

func newSVIDKey() *ecdsa.PrivateKey {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return key
}

// jwtBy is a token of these claims that the key of the good authority has signed.
func jwtBy(kid string, claims map[string]any) (ca.Token, error) {
	return svidBy(jwtKey(), kid, "JWT", claims)
}

func svidBy(key *ecdsa.PrivateKey, kid string, typ jose.ContentType, claims map[string]any) (ca.Token, error) {
	options := (&jose.SignerOptions{}).WithHeader("kid", kid).WithType(typ)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
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

func (a *authority) goodJWT(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
	switch {
	case req.Token != goodToken:
		return "", provider.Errorf(provider.Unauthenticated, "the token is not taken")
	case strings.Contains(req.SubjectID, "stranger"):
		return "", provider.Errorf(provider.Denied, "%s is not for you", req.SubjectID)
	}
	now := time.Now()
	claims := map[string]any{"sub": req.SubjectID, "aud": req.Audiences, "exp": now.Add(req.TTL).Unix(), "iat": now.Unix()}
	a.claims(claims)
	return jwtBy("good", claims)
}

func goodJWKS(kids ...string) []byte { return jwksOf(jwtKey(), "", kids...) }

// jwksOf has the key once for each kid.
func jwksOf(key *ecdsa.PrivateKey, use string, kids ...string) []byte {
	var set jose.JSONWebKeySet
	for _, kid := range kids {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Use: use})
	}
	text, _ := json.Marshal(set)
	return text
}

// following sends one set of keys and stays open.
func following(jwks []byte) watches {
	return func(ctx context.Context, changed func([]byte) error) error {
		if err := changed(jwks); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// repeating sends one set of keys over and over.
func repeating(jwks []byte) watches {
	return func(ctx context.Context, changed func([]byte) error) error {
		for {
			if err := changed(jwks); err != nil {
				return err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// lingering keeps a watch that was cancelled running.
func lingering(o *outer) func(error) error {
	return func(err error) error {
		if errors.Is(err, context.Canceled) {
			o.linger(time.Minute)
		}
		return err
	}
}

// claiming has the claims of JWT-SVIDs changed.
func claiming(change func(map[string]any)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) { a.claims = change })
}

// signingJWTs replaces the answer of the good authority.
func signingJWTs(change func(req ca.JWTRequest, token ca.Token, err error) (ca.Token, error)) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) {
		a.jwt = func(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
			token, err := a.goodJWT(ctx, req)
			return change(req, token, err)
		}
	})
}

func watchingKeys(watch watches) func() wire.Provider {
	return authorityOf(catest.Options{Intermediates: 2}, func(a *authority) { a.keys = watch })
}

func jwtMutants() map[string]func() wire.Provider {
	full := crowded()
	sending := func(jwks []byte) func() wire.Provider { return watchingKeys(following(jwks)) }
	strangers := func(kid string) func() wire.Provider {
		return signingJWTs(func(req ca.JWTRequest, token ca.Token, err error) (ca.Token, error) {
			if err != nil {
				return token, err
			}
			return jwtBy(kid, map[string]any{"sub": req.SubjectID})
		})
	}
	return map[string]func() wire.Provider{
		"JWT-01": signingJWTs(func(_ ca.JWTRequest, token ca.Token, err error) (ca.Token, error) {
			if err == nil {
				err = provider.Errorf(provider.Unavailable, "nobody is there")
			}
			return token, err
		}),
		"JWT-02":        sending([]byte(`{"keys":[]}`)),
		"JWT-02/twice":  sending(goodJWKS("good", "good")),
		"JWT-02/no-kid": sending(bytes.ReplaceAll(goodJWKS("good"), []byte(`"kid":"good",`), nil)),
		"JWT-03":        sending(goodJWKS("other")),
		"JWT-03/no-kid": strangers(""),
		"JWT-03/unsigned": signingJWTs(func(_ ca.JWTRequest, token ca.Token, err error) (ca.Token, error) {
			return token[:max(0, strings.LastIndex(token.Reveal(), ".")+1)], err
		}),
		"JWT-04":       claiming(func(c map[string]any) { c["sub"] = "spiffe://example.org/admin" }),
		"JWT-05":       claiming(func(c map[string]any) { c["aud"] = append([]string{"other"}, jwtAudiences...) }),
		"JWT-05/first": claiming(func(c map[string]any) { c["aud"] = jwtAudiences[0] }),
		"JWT-06":       claiming(func(c map[string]any) { c["exp"] = time.Now().Add(time.Hour).Unix() }),
		"JWT-06/none":  claiming(func(c map[string]any) { delete(c, "exp") }),
		"JWT-07":       claiming(func(c map[string]any) { c["nbf"] = time.Now().Add(2 * time.Minute).Unix() }),
		"JWT-08": signingJWTs(func(_ ca.JWTRequest, token ca.Token, err error) (ca.Token, error) {
			if errors.Is(err, ca.ErrDenied) {
				return jwtBy("good", map[string]any{})
			}
			return token, err
		}),
		"JWT-10": signingJWTs(func(_ ca.JWTRequest, token ca.Token, err error) (ca.Token, error) {
			return token, errors.Join(err, full())
		}),
		"JWT-11": watchingKeys(func(_ context.Context, changed func([]byte) error) error {
			return errors.Join(changed(goodJWKS("good")), provider.Errorf(provider.Unavailable, "that is all"))
		}),
		"JWT-11/repeats": watchingKeys(repeating(goodJWKS("good"))),
		"JWT-12":         wrapped(func(o *outer) { o.keys = lingering(o) }),
	}
}
