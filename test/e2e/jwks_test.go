package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// issuer is an OpenID Connect issuer on loopback, over HTTPS.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	roots string // the file of its server's root
}

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{key: ecKey(t), roots: filepath.Join(t.TempDir(), "roots.pem")}
	i.Server = httptest.NewUnstartedServer(i)
	i.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.StartTLS()
	t.Cleanup(i.Close)
	writeWhole(t, i.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
	return i
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// ServeHTTP says where the keys are, and which.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/openid-configuration" {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
		return
	}
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	b64 := base64.RawURLEncoding.EncodeToString
	fmt.Fprintf(w, `{"keys":[{"kty":"EC","crv":"P-256","use":"sig","kid":"k","x":%q,"y":%q}]}`, b64(point[1:33]), b64(point[33:]))
}

// token returns a JWT (ES256) for that audience, signed with key under the issuer's key ID.
func (i *issuer) token(t *testing.T, key *ecdsa.PrivateKey, subject, audience string, life time.Duration) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"iss": i.URL, "sub": subject, "aud": audience, "exp": time.Now().Add(life).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + b64(claims)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + b64(signature)
}

// anybodysProvider returns the entry of an authority that looks at no token.
func anybodysProvider(t *testing.T) map[string]any {
	t.Helper()
	dir := t.TempDir()
	writeCA(t, dir, "root of all")
	return map[string]any{"name": "file", "sha256": pinOf(t, filepath.Join(binaries(t), "countersign-provider-file")), "settings": map[string]any{"dir": dir}}
}

func TestIssuerKeysIdentifyTokens(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	a := startWorkloads(t, map[string]any{"workloads": map[string]any{
		"verified_by": "jwks", "jwks": map[string]any{"issuer": i.URL, "audiences": []string{"countersign"}, "root_file": i.roots},
	}, "providers": []map[string]any{anybodysProvider(t)}})
	client := dialSDS(t, a.socket)
	ctx := withDeadline(t)
	for _, name := range []string{"web", "db", "web"} {
		got, err := fetchOwn(ctx, client, i.token(t, i.key, name, "countersign", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := workloadOf(got); err != nil || is != name {
			t.Errorf("%s has the certificate of %q (%v)", name, is, err)
		}
	}
	for what, token := range map[string]string{
		"forged":               i.token(t, ecKey(t), "web", "countersign", time.Hour),
		"for another audience": i.token(t, i.key, "web", "vault", time.Hour),
		"expired":              i.token(t, i.key, "web", "countersign", -time.Hour),
		"of another issuer":    tokenFor("web", tokenSecret, time.Hour, 0),
	} {
		if got, err := fetchOwn(ctx, client, token); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a token that is %s got %v, %v", what, got, err)
		}
		if strings.Contains(a.log.String(), token) {
			t.Errorf("the log has the token that is %s", what)
		}
	}
	if n := a.workloads(t); n["identities"] != 2.0 || n["requests"] != 2.0 {
		t.Errorf("the status says %v", n)
	}
}
