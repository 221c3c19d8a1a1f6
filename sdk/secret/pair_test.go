package secret_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestKeyPairNeedsKeyOfItsLeaf(t *testing.T) {
	root := certtest.Root(t)
	one, other := root.Leaf(t, time.Hour, "spiffe://example.org/web"), root.Leaf(t, time.Hour, "spiffe://example.org/web")
	chain := one.PEM()
	item, err := secret.NewKeyPair("web", "database", slices.Concat(chain, root.PEM()), one.KeyPEM(t))
	if err != nil {
		t.Fatal(err)
	}
	if item.Name != "web" || item.Authority != "database" || item.Kind != secret.KeyPair || item.Identity.SPIFFEID.String() != "spiffe://example.org/web" ||
		!item.NotAfter.Equal(one.Cert.NotAfter) || item.Version == "" {
		t.Errorf("%v of %q", item, item.Authority)
	}
	if string(item.Chain) != string(chain) {
		t.Error("the root stayed in the chain")
	}
	if key, err := item.PrivateKey(); err != nil || !pki.SameKey(key.Public(), one.Cert.PublicKey) {
		t.Error(err)
	}
	secretText := string(other.KeyPEM(t))
	for want, c := range map[string]struct{ chain, key []byte }{
		"not the key of the first certificate": {chain, other.KeyPEM(t)},
		"failed to read the key":               {chain, []byte("x")},
		"failed to read the chain":             {nil, one.KeyPEM(t)},
		"11 certificates, 10 are allowed":      {[]byte(strings.Repeat(string(chain), 11)), one.KeyPEM(t)},
	} {
		item, err := secret.NewKeyPair("web", "database", c.chain, c.key)
		if item != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secretText) {
			t.Errorf("%v, %v; want %q", item, err, want)
		}
	}
}
