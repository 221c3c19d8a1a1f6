//go:build linux

package program

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// peer is istiod's own CA, with the same key.
type peer struct {
	crowd
	*proctest.Process
}

// startPeer starts it. It verifies the same tokens by keys that it reads once, asks no API server, and
// keeps no audit log.
func startPeer(t *testing.T, authority rootOf) *peer {
	issuer := newRS256(t)
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(issuer.jwks()) }))
	t.Cleanup(keys.Close)
	dir := filepath.Join(proctest.Folder(t), "ca")
	authority.write(t, dir)
	write(t, filepath.Join(dir, "cert-chain.pem"), string(authority.pem))
	cmd := exec.Command(programs.Foreign(t, "COUNTERSIGN_ISTIO"), "ca")
	cmd.Dir = dir
	cmd.Env = append(proctest.Environ(dir), "ROOT_CA_DIR="+dir, "CA_JWT_ISSUER="+issuerURL, "CA_JWKS_URL="+keys.URL, "CA_LISTEN=127.0.0.1:0", "CA_NAMES="+caAddress)
	p := &peer{Process: proctest.Start(t, cmd)}
	listens := regexp.MustCompile(`{"address":"(.*?)"}`)
	p.Until(t, patience, "istiod's CA listens", func() bool { return listens.MatchString(p.Log.String()) })
	p.crowd = crowd{t, listens.FindStringSubmatch(p.Log.String())[1], authority.pem, &tickets{issuer: issuer}, [2]int{p.PID(), 0}}
	return p
}

// rs256 issues tokens as an API server does by default. istiod takes no others of an issuer.
type rs256 struct{ *rsa.PrivateKey }

func newRS256(t *testing.T) *rs256 { return &rs256{newRSA(t).(*rsa.PrivateKey)} }

func (i *rs256) jwks() []byte {
	key := map[string]string{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k", "n": b64(i.N.Bytes()), "e": "AQAB"}
	return textOf(map[string]any{"keys": []any{key}})
}

func (i *rs256) token(t *testing.T, subject string) string {
	t.Helper()
	now := time.Now()
	claims := map[string]any{"iss": issuerURL, "sub": subject, "aud": []string{"istio-ca"}, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()}
	input := b64(textOf(map[string]string{"alg": "RS256", "kid": "k", "typ": "JWT"})) + "." + b64(textOf(claims))
	digest := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.PrivateKey, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return input + "." + b64(signature)
}

func textOf(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }
