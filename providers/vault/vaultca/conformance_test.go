package vaultca

import (
	"context"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// By kubernetes, as its token is the request's and is looked at.
func TestItKeepsTheRulesOfTheKit(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	open := func(_ context.Context, s Settings) (*CA, error) { return Open(s) }
	conformance.Run(t, conformance.Kit{
		Settings: map[string]any{
			"url": settings.URL, "root_file": settings.RootFile, "role": settings.Role,
			"login": map[string]any{"method": Kubernetes, "role": "agent"},
		},
		WrongSettings:   map[string]any{"url": "http://vault.example.org:8200", "role": "web"},
		Identity:        conformance.Names{SPIFFEID: web, DNSNames: []string{"web.example.org"}, IPAddresses: []string{"192.0.2.7"}},
		RefusedIdentity: conformance.Names{SPIFFEID: web, DNSNames: []string{"bank.example.com"}},
		Token:           jwt,
		RefusedToken:    ca.Token(jwt + "-of-a-stranger"),
		TokenRequired:   true,
	}, provider.Define("vault", "1", open).Provider)
}
