package googleca

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	sdk "github.com/countersign-dev/countersign/sdk/provider"
)

// kit is for a pool that is asked with the token of each request, and has tokens
// exchanged.
func kit(t *testing.T) conformance.Kit {
	t.Helper()
	server, tokens := start(t), startTokens(t)
	settings, exchange := server.socket(t), tokens.settings().Exchange
	return conformance.Kit{
		Settings: map[string]any{
			"ca_pool": settings.CAPool, "endpoint": settings.Endpoint,
			"root_file": fileOf(t, slices.Concat(read(t, server.root), read(t, tokens.root))),
			"exchange":  map[string]any{"audience": exchange.Audience, "sts_url": exchange.STSURL, "allow_other_hosts": true},
		},
		WrongSettings: map[string]any{"ca_pool": "mesh"},
		Identity:      conformance.Names{SPIFFEID: webID, DNSNames: []string{"web.shop.svc"}, IPAddresses: []string{"192.0.2.7"}},
		Token:         theToken,
		RefusedToken:  staleToken,
		TokenRequired: true,
		Exchange:      ca.TokenRequest{SubjectToken: theToken}, RefusedSubjectToken: staleToken,
	}
}

func TestItKeepsTheRulesOfTheKit(t *testing.T) {
	t.Parallel()
	conformance.Run(t, kit(t), sdk.Define("google", "1", Open).Provider)
}
