package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// issuer is an OpenID Connect issuer on loopback, over TLS.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	hangs chan struct{} // what answers wait for, if set
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	return startIssuer(t, nil)
}

// startIssuer returns one whose answers wait until hangs is closed.
func startIssuer(t *testing.T, hangs chan struct{}) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, hangs: hangs}
	i.Server = httptest.NewUnstartedServer(http.HandlerFunc(i.serve))
	i.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.StartTLS()
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	if i.hangs != nil {
		<-i.hangs
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		key := jwkOf(i.key)
		key["kid"], key["use"] = "k", "sig"
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{key}})
	default:
		http.NotFound(w, r)
	}
}

// jwkOf is a key of the curve P-256 as RFC 7517 has it.
func jwkOf(key crypto.PrivateKey) map[string]any {
	point, err := key.(*ecdsa.PrivateKey).PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err)
	}
	return map[string]any{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}
}

// token is one for a subject, which ends after a while.
func (i *issuer) token(t *testing.T, subject, audience string, ends time.Duration) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"iss": i.URL, "sub": subject, "aud": audience, "exp": time.Now().Add(ends).Unix(), "iat": time.Now().Unix()})
	if err != nil {
		t.Fatal(err)
	}
	input := b64([]byte(`{"alg":"ES256","kid":"k","typ":"JWT"}`)) + "." + b64(claims)
	digest := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// issuerIn writes the roots of an issuer into a folder, and returns its authenticator.
func (i *issuer) issuerIn(t *testing.T, dir string) string {
	t.Helper()
	write(t, filepath.Join(dir, "issuer.pem"), pemOf(i.Certificate().Raw))
	return "{kind: jwt, issuer: '" + i.URL + "', audiences: [discovery], trust_domain: example.org, clusters: [far], root_file: DIR/issuer.pem, leeway: 1s}"
}
