package jwtsvid_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

func b64(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// forged is a token by hand, signed by an HMAC with the public key of "a".
func forged(header string, claims claimSet) ca.Token {
	payload, _ := json.Marshal(claims)
	input := b64(header) + "." + b64(string(payload))
	der, _ := x509.MarshalPKIXPublicKey(keys()["a"].Public())
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	mac.Write([]byte(input))
	return ca.Token(input + "." + b64(string(mac.Sum(nil))))
}

// bad are tokens that Fetch must not accept from an authority, nor Validate from a caller.
func bad(t testing.TB, req ca.JWTRequest) map[string]func() ca.Token {
	t.Helper()
	now, good := time.Now(), claimsOf(req, nil)
	of := func(changes claimSet) ca.Token { return token(t, "a", "a", claimsOf(req, changes), nil) }
	payload, _ := json.Marshal(good)
	whole := of(nil).Reveal()
	parts := strings.Split(whole, ".")
	return map[string]func() ca.Token{
		"nothing":          func() ca.Token { return "" },
		"no token":         func() ca.Token { return "x" },
		"huge":             func() ca.Token { return of(claimSet{"x": strings.Repeat("x", 20_000)}) },
		"alg none":         func() ca.Token { return ca.Token(b64(`{"alg":"none","kid":"a"}`) + "." + b64(string(payload)) + ".") },
		"alg HS256":        func() ca.Token { return forged(`{"alg":"HS256","kid":"a"}`, good) },
		"alg EdDSA":        func() ca.Token { return forged(`{"alg":"EdDSA","kid":"a"}`, good) },
		"alg RS256":        func() ca.Token { return forged(`{"alg":"RS256","kid":"a"}`, good) },
		"a stranger's key": func() ca.Token { return token(t, "stranger", "a", good, nil) },
		"crit": func() ca.Token {
			return token(t, "a", "a", good, map[jose.HeaderKey]any{"crit": []string{"x"}, "x": 1})
		},
		"its own key": func() ca.Token {
			return token(t, "stranger", "a", good, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: keys()["stranger"].Public(), KeyID: "a"}})
		},
		"type":       func() ca.Token { return token(t, "a", "a", good, map[jose.HeaderKey]any{"typ": "at+jwt"}) },
		"line break": func() ca.Token { return ca.Token(whole[:10] + "\n" + whole[10:]) },
		"other payload": func() ca.Token {
			return ca.Token(parts[0] + "." + b64(strings.Replace(string(payload), "web", "db", 1)) + "." + parts[2])
		},
		"no signature": func() ca.Token { return ca.Token(parts[0] + "." + parts[1] + ".") },
		"JSON form": func() ca.Token {
			return ca.Token(fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, parts[1], parts[0], parts[2]))
		},
		"no exp":             func() ca.Token { return of(claimSet{"exp": nil}) },
		"exp is text":        func() ca.Token { return of(claimSet{"exp": "tomorrow"}) },
		"exp is huge":        func() ca.Token { return of(claimSet{"exp": 1e300}) },
		"expired":            func() ca.Token { return of(claimSet{"exp": now.Add(-time.Second).Unix()}) },
		"nbf in the future":  func() ca.Token { return of(claimSet{"nbf": now.Add(time.Minute).Unix()}) },
		"iat in the future":  func() ca.Token { return of(claimSet{"iat": now.Add(time.Minute).Unix()}) },
		"no sub":             func() ca.Token { return of(claimSet{"sub": nil}) },
		"sub is not an ID":   func() ca.Token { return of(claimSet{"sub": "web"}) },
		"sub is a domain":    func() ca.Token { return of(claimSet{"sub": "spiffe://example.org"}) },
		"no aud":             func() ca.Token { return of(claimSet{"aud": nil}) },
		"aud is empty":       func() ca.Token { return of(claimSet{"aud": []string{}}) },
		"aud is a number":    func() ca.Token { return of(claimSet{"aud": 7}) },
		"another aud":        func() ca.Token { return of(claimSet{"aud": []string{"other"}}) },
		"an unpublished kid": func() ca.Token { return token(t, "b", "b", good, nil) },
	}
}

// lies are those that only an authority may not send.
func lies(t testing.TB, req ca.JWTRequest) map[string]func() ca.Token {
	t.Helper()
	of := func(changes claimSet) ca.Token { return token(t, "a", "a", claimsOf(req, changes), nil) }
	return map[string]func() ca.Token{
		"another's sub":     func() ca.Token { return of(claimSet{"sub": "spiffe://example.org/admin"}) },
		"one more aud":      func() ca.Token { return of(claimSet{"aud": append([]string{"other"}, req.Audiences...)}) },
		"a longer life":     func() ca.Token { return of(claimSet{"exp": time.Now().Add(req.TTL + time.Minute).Unix()}) },
		"hardly any life":   func() ca.Token { return of(claimSet{"exp": time.Now().Add(2 * time.Second).Unix()}) },
		"a header sans kid": func() ca.Token { return token(t, "a", "", claimsOf(req, nil), nil) },
	}
}

func TestRepliesOfLyingAuthorityAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		n := 0
		for _, all := range []func(testing.TB, ca.JWTRequest) map[string]func() ca.Token{bad, lies} {
			for name := range all(t, ca.JWTRequest{TTL: time.Minute}) {
				a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) { return all(t, req)[name](), nil })
				n++
				got, err := s.Fetch(t.Context(), web, []string{fmt.Sprintf("https://%d", n)})
				if got != "" || !errors.Is(err, ca.ErrInternal) || strings.Contains(err.Error(), "eyJ") {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}

func TestValidationIsByTheStandard(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *authority, s *jwtsvid.Source) {
		domains := []string{"other.test", "example.org"}
		req := ca.JWTRequest{SubjectID: web, Audiences: []string{"x", database}, TTL: time.Minute}
		id, all, err := s.Validate(token(t, "a", "a", claimsOf(req, claimSet{"team": "shop"}), nil), database, domains)
		if err != nil || id != web || all["team"] != "shop" || all["sub"] != web {
			t.Errorf("%s, %v, %v", id, all, err)
		}
		if _, _, err := s.Validate(token(t, "a", "a", claimsOf(req, claimSet{"aud": database}), nil), database, domains); err != nil {
			t.Errorf("aud as a string: %v", err)
		}
		for name, forge := range bad(t, req) {
			if id, all, err := s.Validate(forge(), database, domains); !errors.Is(err, ca.ErrInvalid) || id != "" || all != nil || strings.Contains(err.Error(), "eyJ") {
				t.Errorf("%s: %q, %v, %v", name, id, all, err)
			}
		}
		good := token(t, "a", "a", claimsOf(req, nil), nil)
		for name, err := range map[string]error{
			"another audience":     third(s.Validate(good, "data", domains)),
			"no audience":          third(s.Validate(good, "", domains)),
			"another trust domain": third(s.Validate(good, database, []string{"other.test"})),
		} {
			if !errors.Is(err, ca.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(time.Minute)
		if _, _, err := s.Validate(good, database, domains); !errors.Is(err, ca.ErrInvalid) {
			t.Errorf("after its end: %v", err)
		}
	})
}

func third[A, B any](_ A, _ B, err error) error { return err }

func TestKeysAreFollowed(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		told := 0
		stop := s.Watch(func() { told++ })
		a.publish(jwks("a"))
		a.publish(jwks("a", "b"))
		if told != 1 || strings.Contains(string(s.Keys()), "jwt-svid") || !strings.Contains(string(s.Keys()), `"kid":"b"`) {
			t.Errorf("notified %d times, keys %s", told, s.Keys())
		}
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			return token(t, "b", "b", claimsOf(req, nil), nil), nil
		})
		fetch(t, s, database)
		stop()
		a.publish(jwks("b"))
		if told != 1 || strings.Contains(string(s.Keys()), `"kid":"a"`) {
			t.Errorf("notified %d times, keys %s", told, s.Keys())
		}
	})
}

func TestKeyThatComesLateIsAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		a.answer(func(_ context.Context, req ca.JWTRequest) (ca.Token, error) {
			go func() { time.Sleep(3 * time.Second); a.sets <- jwks("a", "b") }()
			return token(t, "b", "b", claimsOf(req, nil), nil), nil
		})
		fetch(t, s, database)
	})
}

func TestBadKeysDoNotReplaceGoodOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, a *authority, s *jwtsvid.Source) {
		before := string(s.Keys())
		private, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: keys()["b"], KeyID: "b"}}})
		for name, set := range map[string]string{
			"no JSON": "x", "none": `{"keys":[]}`, "no kid": strings.ReplaceAll(string(jwks("b")), `"kid":"b",`, ""),
			"twice": string(jwks("b", "b")), "huge": string(jwks("b")) + strings.Repeat(" ", 300<<10), "private": string(private),
			"secret": `{"keys":[{"kty":"oct","kid":"b","k":"c2VjcmV0"}]}`,
		} {
			a.publish([]byte(set))
			if string(s.Keys()) != before {
				t.Errorf("%s: taken", name)
			}
			time.Sleep(2 * time.Minute) // the watch begins again
		}
		a.publish(jwks("a", "b"))
		if string(s.Keys()) == before {
			t.Error("good keys are not taken after bad ones")
		}
	})
}

func TestWatchThatKeepsEndingCostsFewCallsAndLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watched, a := 0, &authority{t: t}
		a.watch = func(_ context.Context, changed func([]byte) error) error {
			watched++
			return errors.Join(changed(jwks("a")), ca.ErrUnavailable)
		}
		var log logtest.Log
		s, err := jwtsvid.New(jwtsvid.Config{Signer: a, Audiences: []string{"*"}, Log: log.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(log.String(), "watching again"); watched < 5 || watched > 30 || lines > 5 {
			t.Errorf("%d watches and %d lines in 10 minutes", watched, lines)
		}
	})
}

func TestNothingIsValidatedBeforeKeysAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &authority{t: t, sets: make(chan []byte)}
		s, err := jwtsvid.New(jwtsvid.Config{Signer: a, Audiences: []string{"*"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		good := token(t, "a", "a", claimsOf(ca.JWTRequest{SubjectID: web, Audiences: []string{database}, TTL: time.Minute}, nil), nil)
		if _, _, err := s.Validate(good, database, []string{"example.org"}); !errors.Is(err, ca.ErrUnavailable) || s.Keys() != nil {
			t.Errorf("%v, keys %s", err, s.Keys())
		}
	})
}
