package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

const (
	audience1 = "istio-ca"
	subject   = "system:serviceaccount:shop:web"
	template  = "spiffe://cluster.local/ns/{namespace}/sa/{service_account}"
)

// claimSet is the claims of a token; a nil value leaves a claim out.
type claimSet map[string]any

func claimsOf(issuer string, changes ...claimSet) claimSet {
	out := claimSet{
		"iss": issuer, "sub": subject, "aud": []string{audience1},
		"exp": now.Add(time.Hour).Unix(), "nbf": now.Unix(), "iat": now.Unix(),
	}
	for _, change := range changes {
		for name, value := range change {
			if out[name] = value; value == nil {
				delete(out, name)
			}
		}
	}
	return out
}

// sign makes a token with go-jose.
func sign(t testing.TB, key any, id string, algorithm jose.SignatureAlgorithm, claims any) ca.Token {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	payload, ok := claims.([]byte)
	if !ok {
		if payload, err = json.Marshal(claims); err != nil {
			t.Fatal(err)
		}
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return ca.Token(text)
}

// forge makes a token by hand, with any header.
func forge(header, payload string, sign func(input []byte) []byte) ca.Token {
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	return ca.Token(input + "." + b64(sign([]byte(input))))
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

var keysOnce = sync.OnceValue(func() map[string]crypto.Signer {
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	all := map[string]crypto.Signer{"rsa": rsaKey, "ed": edKey}
	for id, curve := range map[string]elliptic.Curve{"p256": elliptic.P256(), "p384": elliptic.P384(), "p521": elliptic.P521()} {
		all[id], _ = ecdsa.GenerateKey(curve, rand.Reader)
	}
	return all
})

func jwks(t testing.TB, keys map[string]crypto.Signer) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for id, key := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig"})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// issuerServer is an OpenID Connect issuer on loopback.
type issuerServer struct {
	*httptest.Server
	rootFile string
	asked    atomic.Int32 // for keys
	handler  atomic.Pointer[http.HandlerFunc]
}

func newIssuer(t testing.TB) *issuerServer {
	t.Helper()
	s := &issuerServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if other := s.handler.Load(); other != nil {
			(*other)(w, r)
			return
		}
		s.serve(t, w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a test wants to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	s.rootFile = filepath.Join(t.TempDir(), "roots.pem")
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.rootFile, roots, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *issuerServer) serve(t testing.TB, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case discoveryPath:
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": s.URL, "jwks_uri": s.URL + "/keys"})
	case "/keys":
		s.asked.Add(1)
		_, _ = w.Write(jwks(t, keysOnce()))
	default:
		http.NotFound(w, r)
	}
}

// answer has the issuer do this from now on.
func (s *issuerServer) answer(handler http.HandlerFunc) { s.handler.Store(&handler) }

func (s *issuerServer) config() Config {
	return Config{
		Issuer: s.URL, Audiences: []string{"other", audience1}, RootFile: s.rootFile,
		ServiceAccounts: template, TrustDomain: "example.org", Now: func() time.Time { return now },
	}
}

func verifier(t testing.TB, cfg Config) *Verifier {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// fixed returns a verifier of an issuer whose keys are in a file.
func fixed(t testing.TB) *Verifier {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, jwks(t, keysOnce()), 0o600); err != nil {
		t.Fatal(err)
	}
	return verifier(t, Config{
		Issuer: "https://issuer.example", Audiences: []string{"other", audience1}, JWKSFile: path,
		ServiceAccounts: template, TrustDomain: "example.org", Now: func() time.Time { return now },
	})
}

func with(token ca.Token) authn.Credential { return authn.Credential{Token: token} }
