package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestForgedTokenIsRefused(t *testing.T) {
	v := fixed(t)
	good, err := json.Marshal(claimsOf(issuer))
	if err != nil {
		t.Fatal(err)
	}
	payload := string(good)
	none := func([]byte) []byte { return nil }
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	byStranger := func(input []byte) []byte { return ed25519.Sign(stranger, input) }
	own := keysOnce()["ed"].(ed25519.PrivateKey)
	byOwn := func(input []byte) []byte { return ed25519.Sign(own, input) }
	embedded, _ := json.Marshal(jose.JSONWebKey{Key: stranger.Public(), KeyID: "ed"})
	ec := sign(t, keysOnce()["p256"], "p256", jose.ES256, claimsOf(issuer)).Reveal()

	for name, test := range map[string]struct {
		token ca.Token
		says  string
	}{
		"alg none":                     {forge(`{"alg":"none"}`, payload, none), `signed with "none"`},
		"alg None":                     {forge(`{"alg":"None","kid":"ed"}`, payload, none), `signed with "None"`},
		"no alg":                       {forge(`{"kid":"ed"}`, payload, byOwn), `signed with ""`},
		"empty header":                 {forge(``, payload, none), `signed with ""`},
		"HS256 with the public RSA":    {forge(`{"alg":"HS256","kid":"rsa"}`, payload, hs256(t, keysOnce()["rsa"])), `signed with "HS256"`},
		"HS256 with the public EC":     {forge(`{"alg":"HS256","kid":"p256"}`, payload, hs256(t, keysOnce()["p256"])), `signed with "HS256"`},
		"ES256K":                       {forge(`{"alg":"ES256K","kid":"p256"}`, payload, none), `signed with "ES256K"`},
		"no signature":                 {forge(`{"alg":"EdDSA","kid":"ed"}`, payload, none), "signature does not verify"},
		"a stranger's signature":       {forge(`{"alg":"EdDSA","kid":"ed"}`, payload, byStranger), "signature does not verify"},
		"a stranger's, no kid":         {forge(`{"alg":"EdDSA"}`, payload, byStranger), "signature does not verify"},
		"its own key with it":          {forge(`{"alg":"EdDSA","kid":"ed","jwk":`+string(embedded)+`}`, payload, byStranger), "signature does not verify"},
		"its own key's URL":            {forge(`{"alg":"EdDSA","kid":"ed","jku":"https://evil.example/keys","x5u":"https://evil.example/c"}`, payload, byStranger), "signature does not verify"},
		"another family of the key":    {forge(`{"alg":"ES256","kid":"ed"}`, payload, byOwn), `no key "ed" for ES256`},
		"another curve":                {sign(t, keysOnce()["p256"], "p384", jose.ES256, claimsOf(issuer)), `no key "p384" for ES256`},
		"a kid that is a path":         {forge(`{"alg":"EdDSA","kid":"../../../dev/null"}`, payload, byOwn), "no key"},
		"a kid that is a URL":          {forge(`{"alg":"EdDSA","kid":"https://evil.example/key"}`, payload, byOwn), "no key"},
		"a kid that is a query":        {forge(`{"alg":"EdDSA","kid":"ed' OR '1'='1"}`, payload, byOwn), "no key"},
		"a kid with a line":            {forge(`{"alg":"EdDSA","kid":"ed\n"}`, payload, byOwn), "no key"},
		"a kid of the wrong case":      {forge(`{"alg":"EdDSA","kid":"ED"}`, payload, byOwn), "no key"},
		"a kid that is a number":       {forge(`{"alg":"EdDSA","kid":7}`, payload, byOwn), "malformed token"},
		"a long kid":                   {forge(`{"alg":"EdDSA","kid":"`+strings.Repeat("x", 300)+`"}`, payload, byOwn), "key ID has 300 bytes"},
		"two algs":                     {forge(`{"alg":"EdDSA","alg":"none","kid":"ed"}`, payload, byOwn), "malformed token"},
		"a header that must be known":  {forge(`{"alg":"EdDSA","kid":"ed","crit":["x"],"x":1}`, payload, byOwn), "signature does not verify"},
		"another payload":              {replaced(t, ec, 1, b64([]byte(strings.Replace(payload, "shop", "kube-system", 1)))), "signature does not verify"},
		"another header":               {replaced(t, ec, 0, b64([]byte(`{"alg":"ES256","kid":"p256" }`))), "signature does not verify"},
		"a DER signature":              {forge(`{"alg":"ES256","kid":"p256"}`, payload, derES256(t)), "signature does not verify"},
		"zeroes for a signature":       {forge(`{"alg":"ES256","kid":"p256"}`, payload, func([]byte) []byte { return make([]byte, 64) }), "signature does not verify"},
		"base64 with padding":          {ca.Token(ec + "=="), "malformed token"},
		"white space in it":            {ca.Token(ec + "\n"), ""},
		"huge":                         {ca.Token(ec + strings.Repeat("A", maxToken)), "16384 are allowed"},
		"two issuers":                  {forge(`{"alg":"EdDSA","kid":"ed"}`, `{"iss":"https://evil.example",`+payload[1:], byOwn), "duplicate key"},
		"two subjects":                 {forge(`{"alg":"EdDSA","kid":"ed"}`, `{"sub":"system:serviceaccount:kube-system:admin",`+payload[1:], byOwn), "duplicate key"},
		"two ends":                     {forge(`{"alg":"EdDSA","kid":"ed"}`, `{"exp":9999999999,`+payload[1:], byOwn), "duplicate key"},
		"the issuer in capitals alone": {forge(`{"alg":"EdDSA","kid":"ed"}`, strings.Replace(payload, `"iss"`, `"ISS"`, 1), byOwn), `issuer is ""`},
		"something after the claims":   {forge(`{"alg":"EdDSA","kid":"ed"}`, payload+`{}`, byOwn), ""},
		"a payload that is not base64": {forge(`{"alg":"EdDSA","kid":"ed","b64":false,"crit":["b64"]}`, payload, byOwn), ""},
	} {
		got, err := v.Authenticate(t.Context(), with(test.token))
		if got != (authn.Identity{}) || err == nil || errors.Is(err, authn.ErrUnavailable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %+v, %v; want a refusal with %q", name, got, err, test.says)
			continue
		}
		if text := err.Error(); len(text) > 1200 || strings.Contains(text, test.token.Reveal()[:20]) {
			t.Errorf("%s: the refusal is %q", name, text)
		}
	}
}

// hs256 signs with a public key as if it were a secret.
func hs256(t *testing.T, key crypto.Signer) func([]byte) []byte {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return func(input []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(input)
		return mac.Sum(nil)
	}
}

func derES256(t *testing.T) func([]byte) []byte {
	return func(input []byte) []byte {
		sum := sha256.Sum256(input)
		signature, err := ecdsa.SignASN1(rand.Reader, keysOnce()["p256"].(*ecdsa.PrivateKey), sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return signature
	}
}

func replaced(t *testing.T, token string, part int, with string) ca.Token {
	t.Helper()
	parts := strings.Split(token, ".")
	parts[part] = with
	return ca.Token(strings.Join(parts, "."))
}

func TestNestedOrEncryptedTokenIsRefused(t *testing.T) {
	v := fixed(t)
	inner := sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer))
	nested := sign(t, keysOnce()["ed"], "ed", jose.EdDSA, []byte(inner.Reveal()))
	asJSON := ca.Token(fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, strings.Split(inner.Reveal(), ".")[1], strings.Split(inner.Reveal(), ".")[0], strings.Split(inner.Reveal(), ".")[2]))
	encrypter, err := jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.ECDH_ES, Key: &keysOnce()["p256"].(*ecdsa.PrivateKey).PublicKey}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := encrypter.Encrypt([]byte(inner.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	encrypted, _ := sealed.CompactSerialize()
	for name, token := range map[string]ca.Token{"nested": nested, "JSON": asJSON, "encrypted": ca.Token(encrypted)} {
		if got, err := v.Authenticate(t.Context(), with(token)); !errors.Is(err, authn.ErrNotMine) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestOnlySignatureKeysAreHeld(t *testing.T) {
	ec := keysOnce()["p256"]
	private, _ := json.Marshal(jose.JSONWebKey{Key: ec, KeyID: "private"})
	secret, _ := json.Marshal(jose.JSONWebKey{Key: []byte("sixteen or more bytes"), KeyID: "secret"})
	sealing, _ := json.Marshal(jose.JSONWebKey{Key: ec.Public(), KeyID: "enc", Use: "enc"})
	good, _ := json.Marshal(jose.JSONWebKey{Key: ec.Public(), KeyID: "good"})
	const small = `{"kty":"RSA","kid":"small","n":"` + "wJ9e7rF0W6k3ZzYyQ2m8bq3J1n5v7xw9s2d4f6g8h0k" + `","e":"AQAB"}`
	offCurve := `{"kty":"EC","kid":"off","crv":"P-256","x":"` + b64(make([]byte, 32)) + `","y":"` + b64(make([]byte, 32)) + `"}`
	text := fmt.Sprintf(`{"keys":[%s,%s,%s,%s,%s,{"kty":"new"},7,%s]}`, private, secret, sealing, small, offCurve, good)
	set, err := jws.ParseKeys([]byte(text))
	if err != nil || len(set) != 1 || set[0].KeyID != "good" {
		t.Errorf("%d keys, %v", len(set), err)
	}
	for name, text := range map[string]string{
		"no JSON": "x", "no keys": `{}`, "an empty set": `{"keys":[]}`, "nothing usable": fmt.Sprintf(`{"keys":[%s]}`, private),
		"two sets": `{"keys":[],"keys":[]}`, "many": `{"keys":[` + strings.Repeat("{},", 100) + `{}]}`,
	} {
		if set, err := jws.ParseKeys([]byte(text)); err == nil {
			t.Errorf("%s: %d keys", name, len(set))
		}
	}
}

func TestKeyMatchesAlgorithmAndAmbiguousKeyIsNotUsed(t *testing.T) {
	one, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bound := jws.Keys{{Key: keysOnce()["rsa"].Public(), KeyID: "r", Algorithm: "RS256"}, {Key: one.Public(), KeyID: "e"}}
	for _, c := range []struct {
		id, algorithm string
		want          int
	}{
		{"r", "RS256", 1}, {"r", "PS256", 0}, {"r", "RS512", 0}, {"e", "ES256", 1}, {"e", "ES384", 0},
		{"", "ES256", 1}, {"", "RS256", 1}, {"", "EdDSA", 0}, {"x", "ES256", 0},
	} {
		if got := bound.Find(c.id, c.algorithm); len(got) != c.want {
			t.Errorf("%q for %s: %d keys", c.id, c.algorithm, len(got))
		}
	}
	two := append(slices.Clone(bound), jose.JSONWebKey{Key: one.Public(), KeyID: "f"})
	if got := two.Find("", "ES256"); len(got) != 0 {
		t.Errorf("any of %d keys would do", len(got))
	}
}

func FuzzToken(f *testing.F) {
	v := fixed(f)
	good := sign(f, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer)).Reveal()
	f.Add(good)
	f.Add(strings.TrimSuffix(good, good[len(good)-4:]))
	f.Add(forge(`{"alg":"none"}`, `{"iss":"`+issuer+`"}`, func([]byte) []byte { return nil }).Reveal())
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := v.Authenticate(t.Context(), with(ca.Token(text)))
		if (err == nil) != (got != authn.Identity{}) {
			t.Fatalf("%+v with %v", got, err)
		}
		// A signature of another length of base64 may decode to the same bytes.
		if err == nil && !strings.HasPrefix(text, good[:strings.LastIndex(good, ".")]) {
			t.Errorf("taken: %q", text)
		}
	})
}

// FuzzClaims has the issuer itself sign anything.
func FuzzClaims(f *testing.F) {
	v := fixed(f)
	good, _ := json.Marshal(claimsOf(issuer))
	f.Add(good)
	f.Add([]byte(`{"iss":"https://issuer.example","aud":["istio-ca"],"sub":"spiffe://example.org/web","exp":1e10}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		id, err := v.identity(payload)
		if err == nil && (id.SPIFFEID == "" || id.Expiry.Before(now)) {
			t.Errorf("%q names %+v", payload, id)
		}
	})
}
