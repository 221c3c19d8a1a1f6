package overview_test

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// A provider's facts relax the checks of its certificates: an operator must see that.
func TestFactsOfProviderAreShownWithTheirSettings(t *testing.T) {
	for facts, want := range map[ca.Facts][]string{
		{}:                               nil,
		{FixedLifetime: true}:            {"its CA chooses the lifetime (accept_longer_ttl)"},
		{NameMatch: ca.MatchTrustDomain}: {"its CA chooses the names: trust-domain (identity_check)"},
		{NameMatch: ca.MatchAny, NeedsToken: true}: {"its CA chooses the names: any (identity_check)", "its CA requires a token"},
	} {
		got := overview.ProviderOf(pluginhost.Status{Metadata: wire.Metadata{Facts: facts}}).Facts
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
