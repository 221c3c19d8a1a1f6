package secret_test

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestWrongSettingsAreRefusedBeforeAnythingStarts(t *testing.T) {
	for name, change := range map[string]func(*secret.Config){
		"a secret without a name":         func(c *secret.Config) { c.Secrets[0].Name = "" },
		"a name twice":                    func(c *secret.Config) { c.Secrets[1].Name = "default" },
		"an unknown kind":                 func(c *secret.Config) { c.Secrets[0].Kind = 0 },
		"an unknown authority":            func(c *secret.Config) { c.Secrets[0].Authorities = []string{"x"} },
		"two authorities for a key":       func(c *secret.Config) { c.Secrets[0].Authorities = []string{"test", "test"} },
		"a bundle of nobody":              func(c *secret.Config) { c.Secrets[1].Authorities = nil },
		"no identity":                     func(c *secret.Config) { c.Secrets[0].Identity = pki.Identity{} },
		"an unknown key type":             func(c *secret.Config) { c.Secrets[0].KeyType = "rsa-1024" },
		"a negative lifetime":             func(c *secret.Config) { c.Secrets[0].TTL = -1 },
		"a ratio of one":                  func(c *secret.Config) { c.Secrets[0].RenewRatio = 1 },
		"a negative ratio":                func(c *secret.Config) { c.Secrets[0].RenewRatio = -0.5 },
		"a negative jitter":               func(c *secret.Config) { c.Secrets[0].RenewJitter = -0.5 },
		"an authority without a name":     func(c *secret.Config) { c.Authorities[0].Name = "" },
		"an authority twice":              func(c *secret.Config) { c.Authorities = append(c.Authorities, c.Authorities[0]) },
		"an authority without a client":   func(c *secret.Config) { c.Authorities[0].Client = nil },
		"a negative overlap":              overlap(-1),
		"a negative interval":             func(c *secret.Config) { c.Authorities[0].RootInterval = -1 },
		"a negative time for the request": func(c *secret.Config) { c.Authorities[0].Timeout = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			config := secret.Config{
				Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{})}},
				Secrets: []secret.Spec{
					{Name: "default", Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: identity(t, "spiffe://example.org/web")},
					{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
				},
			}
			change(&config)
			if m, err := secret.New(config); err == nil {
				m.Close()
				t.Error("it was accepted")
			}
		})
	}
}
