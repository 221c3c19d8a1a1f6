//go:build linux

package program

import (
	"context"
	"crypto"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/countersign-dev/countersign/internal/strangers"
	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// checks are those of countersign-ra that cost the most: the token, the CSR in the host and in the
// provider, and the reply's chain. A server that makes them and nothing else (no process for the CA, no
// policy, queue, limits or audit log) is the floor of any that makes them all.
type checks struct {
	issuer *rs256
	tokens *jwt.Verifier
	roots  *pki.Bundle
}

func startChecked(t *testing.T, authority rootOf) *crowd {
	t.Helper()
	c := &checks{issuer: newRS256(t)}
	keys := filepath.Join(t.TempDir(), "jwks.json")
	write(t, keys, string(c.issuer.jwks()))
	var err error
	if c.tokens, err = jwt.New(jwt.Config{Issuer: issuerURL, Audiences: []string{"istio-ca"}, JWKSFile: keys, ServiceAccounts: "spiffe://cluster.local/ns/{namespace}/sa/{service_account}"}); err != nil {
		t.Fatal(err)
	}
	if c.roots, err = pki.ParseBundle(authority.pem); err != nil {
		t.Fatal(err)
	}
	return startBare(t, authority, c)
}

// before checks the token, and the CSR once: who signs checks it again.
func (c *checks) before(ctx context.Context, request *security.IstioCertificateRequest) error {
	if c == nil {
		return nil
	}
	token, _ := strangers.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if _, err := c.tokens.Authenticate(ctx, authn.Credential{Token: token}); err != nil {
		return err
	}
	_, err := pki.ParseCSR([]byte(request.GetCsr()))
	return err
}

// after checks what was signed.
func (c *checks) after(key crypto.PublicKey, id string, chain []byte) error {
	if c == nil {
		return nil
	}
	names, err := pki.NewIdentity(id, nil, nil)
	if err != nil {
		return err
	}
	now := time.Now()
	_, err = pki.Check{Key: key, Identity: names, Names: pki.ExactNames, Roots: c.roots, Now: now, AskedUntil: now.Add(24 * time.Hour)}.Chain(chain)
	return err
}
