// Package oidctest is an OpenID Connect issuer for tests, with one ECDSA P-256 key: [New] has its
// keys in [Issuer.JWKS] alone, [Start] serves them, too.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Issuer signs tokens of any subject.
type Issuer struct {
	URL string
	Key *ecdsa.PrivateKey

	server *httptest.Server
}

// New is the issuer of that URL.
func New(tb testing.TB, url string) *Issuer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &Issuer{URL: url, Key: key}
}

// Start is an issuer on loopback, over TLS. It calls before, where that is set, for each request.
func Start(tb testing.TB, before func()) *Issuer {
	tb.Helper()
	i := New(tb, "")
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil {
			before()
		}
		i.serve(w, r)
	}))
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	i.URL = i.server.URL
	tb.Cleanup(i.Close)
	return i
}

// Close ends the server.
func (i *Issuer) Close() { i.server.Close() }

// Root is the certificate of the server, PEM.
func (i *Issuer) Root() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		_, _ = w.Write(i.JWKS())
	default:
		http.NotFound(w, r)
	}
}

// JWKS is its key, as it publishes it.
func (i *Issuer) JWKS() []byte {
	key := JWK(i.Key)
	key["kid"], key["use"], key["alg"] = "k", "sig", "ES256"
	return encoded(map[string]any{"keys": []any{key}})
}

// JWK is the public half of a key as RFC 7517 has it.
func JWK(key *ecdsa.PrivateKey) map[string]any {
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err)
	}
	return map[string]any{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}
}

// Token is one that ends after life. Each change may alter it before it is signed.
func (i *Issuer) Token(tb testing.TB, subject, audience string, life time.Duration, changes ...func(header, claims map[string]any)) string {
	tb.Helper()
	header := map[string]any{"alg": "ES256", "kid": "k", "typ": "JWT"}
	claims := map[string]any{"iss": i.URL, "sub": subject, "aud": audience, "exp": time.Now().Add(life).Unix(), "iat": time.Now().Unix()}
	for _, change := range changes {
		if change != nil {
			change(header, claims)
		}
	}
	input := b64(encoded(header)) + "." + b64(encoded(claims))
	digest := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, i.Key, digest[:])
	if err != nil {
		tb.Fatal(err)
	}
	return input + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }
