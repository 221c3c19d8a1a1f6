//go:build linux

package kubetest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
)

// Resign returns a token of the server's with other claims, signed by the key of its service
// accounts. The server itself makes no token that has expired, or that lies.
func (c *Cluster) Resign(token string, change func(claims map[string]any)) string {
	c.t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(c.t, err)
	claims := map[string]any{}
	must(c.t, json.Unmarshal(text, &claims))
	change(claims)
	text, err = json.Marshal(claims)
	must(c.t, err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
	return signed + "." + base64.RawURLEncoding.EncodeToString(c.sign(signed))
}

// sign returns a signature of the algorithm ES256.
func (c *Cluster) sign(text string) []byte {
	c.t.Helper()
	file, err := os.ReadFile(c.file("accounts-key.pem"))
	must(c.t, err)
	block, _ := pem.Decode(file)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	must(c.t, err)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	must(c.t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signature
}
