package vaultca

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const staleJWT = ca.Token("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.c2lnbmF0dXJl")

// kit logs in by kubernetes, as its token is the request's and is looked at.
func kit(v *vault) conformance.Kit {
	settings := v.settings()
	return conformance.Kit{
		Settings: map[string]any{
			"url": settings.URL, "root_file": settings.RootFile, "role": settings.Role,
			"login": map[string]any{"method": Kubernetes, "role": "agent"},
		},
		WrongSettings:   map[string]any{"url": "http://vault.example.org:8200", "role": "web"},
		Identity:        conformance.Names{SPIFFEID: web, DNSNames: []string{"web.example.org", "www.example.org"}, IPAddresses: []string{"192.0.2.7"}},
		RefusedIdentity: conformance.Names{SPIFFEID: web, DNSNames: []string{"bank.example.com"}},
		Token:           jwt,
		RefusedToken:    staleJWT,
		TokenRequired:   true,
		CallTimeout:     conformance.Duration(time.Minute), // on a busy machine
	}
}

// ownNames returns a server whose role takes names from the call.
func ownNames(t *testing.T) *vault {
	t.Helper()
	v := newVault(t)
	v.ownNames = true
	return v
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	t.Parallel()
	open := func(_ context.Context, s Settings) (*CA, error) { return Open(s) }
	conformance.Run(t, kit(ownNames(t)), provider.Define("vault", "1", open).Provider)
}

// kitFile is a kit as `countersign provider test` reads it.
type kitFile struct {
	conformance.Kit
	TokenFile        string `json:"token_file"`
	RefusedTokenFile string `json:"refused_token_file"`
}

func TestBinaryConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	t.Parallel()
	v := ownNames(t)
	text, err := json.Marshal(kitFile{kit(v), v.write(t, "jwt", []byte(jwt)), v.write(t, "stale-jwt", []byte(staleJWT))})
	must(t, err)
	testkit.Run(t, "countersign", "provider", "test", "--quiet", testkit.Program(t, "countersign-provider-vault"), "--kit", v.write(t, "kit.json", text))
}
