package jws_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/jws"
)

func marshaled(t *testing.T, key any, algorithm string, change func(*jose.JSONWebKey)) string {
	t.Helper()
	jwk := jose.JSONWebKey{Key: key, Algorithm: algorithm}
	if change != nil {
		change(&jwk)
	}
	text, err := jwk.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func generated[K any](t *testing.T) func(K, error) K {
	return func(key K, err error) K {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
}

func TestProofKeyIsPublicAndHasItsAlgorithm(t *testing.T) {
	ec := generated[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	strong := generated[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := marshaled(t, ec.Public(), "ES256", nil)
	for name, good := range map[string]string{"EC": public, "RSA": marshaled(t, strong.Public(), "PS384", nil)} {
		key, err := jws.ParseProofKey([]byte(good))
		if err != nil || marshaled(t, key.Key, key.Algorithm, nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
	with := func(member string) string { return strings.TrimSuffix(public, "}") + "," + member + "}" }
	for name, bad := range map[string]string{
		"empty": "", "null": "null", "list": "[]", "number": "1", "object": "{}", "two": public + public,
		"private EC":    marshaled(t, ec, "ES256", nil),
		"private RSA":   marshaled(t, strong, "RS256", nil),
		"Ed25519":       marshaled(t, edwards.Public(), "EdDSA", nil),
		"symmetric":     marshaled(t, []byte("0123456789abcdef0123456789abcdef"), "HS256", nil),
		"no alg":        marshaled(t, ec.Public(), "", nil),
		"alg none":      marshaled(t, ec.Public(), "none", nil),
		"alg of RSA":    marshaled(t, ec.Public(), "RS256", nil),
		"alg of curve":  marshaled(t, ec.Public(), "ES384", nil),
		"encryption":    marshaled(t, strong.Public(), "RSA-OAEP", nil),
		"kid":           marshaled(t, ec.Public(), "ES256", func(k *jose.JSONWebKey) { k.KeyID = "a" }),
		"stray private": with(`"p":"AQAB"`),
		"certificate":   with(`"x5c":[]`),
		"URL":           with(`"x5u":"https://example.org/"`),
		"alg twice":     with(`"alg":"ES384"`),
		"upper case":    with(`"D":"AQAB"`),
		"long":          public + strings.Repeat(" ", 2<<10),
		"not on curve":  strings.Replace(public, `"y":"`, `"y":"AAAA`, 1),
		"weak RSA":      `{"kty":"RSA","alg":"RS256","e":"AQAB","n":"` + strings.Repeat("v", 170) + `"}`,
	} {
		if _, err := jws.ParseProofKey([]byte(bad)); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysAreOfOneKindOfSVID(t *testing.T) {
	ec := generated[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	of := func(use string) []byte {
		return []byte(`{"keys":[` + marshaled(t, ec.Public(), "", func(k *jose.JSONWebKey) { k.Use, k.KeyID = use, "a" }) + `]}`)
	}
	for use, want := range map[string][2]bool{
		"": {true, false}, "sig": {true, false}, "jwt-svid": {true, false}, "wit-svid": {false, true}, "x509-svid": {false, false},
	} {
		_, jwt := jws.ParseKeys(of(use))
		_, wit := jws.ParseWITKeys(of(use))
		if (jwt == nil) != want[0] || (wit == nil) != want[1] {
			t.Errorf("use %q: as keys of JWTs %v, of WIT-SVIDs %v", use, jwt, wit)
		}
	}
}

func TestSameKeyComparesKeyAndAlgorithm(t *testing.T) {
	one := generated[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	other := generated[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	key := jose.JSONWebKey{Key: one.Public(), Algorithm: "ES256"}
	for _, different := range []jose.JSONWebKey{{}, {Key: one.Public()}, {Key: other.Public(), Algorithm: "ES256"}} {
		if jws.SameKey(key, different) || jws.SameKey(different, key) {
			t.Errorf("%+v is the same", different)
		}
	}
	if !jws.SameKey(key, jose.JSONWebKey{Key: one.Public(), Algorithm: "ES256", KeyID: "a"}) {
		t.Error("the same key is another")
	}
}
