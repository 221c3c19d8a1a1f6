package agent

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/sdk/agent"
)

func wired(t *testing.T, c config.Config) agent.Config {
	t.Helper()
	p := &providers{tokens: wiring.NewTokenCache(nil, slog.New(slog.DiscardHandler))}
	cfg, err := agentConfig(c, clients{p.client, p.tokens}, p, metrics.New(&p.recorder, p.all), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func pair(name, id string) config.Secret {
	return config.Secret{Name: name, Kind: config.KeyPair, SPIFFEID: id, Providers: []string{"ca"}}
}

// The sockets have the trust domains of the start.
func TestMovedTrustDomainNeedsARestart(t *testing.T) {
	at := func(web string) agent.Config {
		var c config.Config
		c.WorkloadAPI.Identities = []config.WorkloadIdentity{{Name: "web", Bundle: "ROOTCA"}, {Name: "api", Bundle: "ROOTCA"}}
		c.Secrets = []config.Secret{pair("web", web), pair("api", "spiffe://example.org/api")}
		return wired(t, c)
	}
	started := at("spiffe://example.org/web").Socket.SPIRE
	for id, want := range map[string][]string{
		"spiffe://example.org/other": nil,
		"spiffe://example.com/web":   {`the trust domain of "web"`},
	} {
		if moved := movedDomains(started, at(id).Socket.SPIRE); !slices.Equal(moved, want) {
			t.Errorf("%s: %q, want %q", id, moved, want)
		}
	}
}

// Its roots are often held while its certificate is not.
func TestTrustDomainOfACertificateFromSPIREIsKnownBefore(t *testing.T) {
	var c config.Config
	c.WorkloadAPI.Identities = []config.WorkloadIdentity{{Name: "web", Bundle: "ROOTCA"}, {Name: "any", Bundle: "ROOTCA"}}
	c.Spire.Secrets = []config.SpireSecret{{Name: "web", Kind: config.KeyPair, SPIFFEID: "spiffe://example.org/web"}, {Name: "any", Kind: config.KeyPair}}
	cfg := wired(t, c)
	for i, want := range []string{"example.org", ""} {
		if got := []string{cfg.WorkloadAPI.Identities[i].TrustDomain, cfg.Socket.SPIRE.Identities[i].TrustDomain}; got[0] != want || got[1] != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
}
