package agent

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// Each workload of an agent of many may have the bundles of foreign trust domains.
func TestForeignBundlesAreForAllWorkloads(t *testing.T) {
	f, err := openFederation([]config.BundleEndpoint{{Name: "partner", Followed: config.Followed{TrustDomain: "partner.example", URL: "https://partner.example/bundle"}}}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{Identities: &identities.Config{Bundles: []string{config.RootCA}}}
	f.join(&cfg)
	if want := []string{config.RootCA, "partner"}; !slices.Equal(cfg.Identities.Bundles, want) {
		t.Errorf("the workloads may have %q; want %q", cfg.Identities.Bundles, want)
	}
}
