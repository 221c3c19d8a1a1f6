package e2e

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestRootRotationCostsNoHandshake(t *testing.T) {
	byEachAPI(t, func(t *testing.T, api apiType) { rotatesTheRoot(t, api, agentConfig{}, "default", "ROOTCA") })
}

// Envoy as SPIRE's documentation configures it: by SPIFFE IDs, and with its SPIFFE validator.
func TestRootRotationBySPIRENamesCostsNoHandshake(t *testing.T) {
	byEachAPI(t, func(t *testing.T, api apiType) {
		rotatesTheRoot(t, api, agentConfig{}, envoyID, "spiffe://"+trustDomain)
	})
}

// With peers in another trust domain, too.
func TestRootRotationWithAllBundlesCostsNoHandshake(t *testing.T) {
	t.Parallel()
	rotatesTheRoot(t, stateOfTheWorld, agentConfig{
		secrets:     []map[string]any{{"name": "far", "kind": "trust-bundle"}},
		workloadAPI: map[string]any{"federated": map[string]any{"far.test": "far"}},
	}, envoyID, "ALL")
}

func rotatesTheRoot(t *testing.T, api apiType, config agentConfig, certificate, roots string) {
	needEnvoy(t)
	a := startAgent(t, config)
	e := startEnvoyWith(t, a.socket, api, certificate, roots)
	w := startWorkload(t, a.socket, "client")
	p := startProber(t, w, e.address(t), envoyID)

	first := w.bundle()
	second := pki.NewBundle(writeCA(t, a.ca, "second root"))
	w.await(t, "both roots", func() bool { return w.roots.Equal(first.Union(second)) })
	p.await(t, "certificates of the second root on both sides", func() bool {
		last := p.handshakes[len(p.handshakes)-1]
		return last.server.Issuer.CommonName == "second root" && last.client.Issuer.CommonName == "second root"
	})
	w.await(t, "the second root alone, when no certificate of the first is left", func() bool { return w.roots.Equal(second) })
	p.awaitHandshakes(t, 20)
	p.noFailures(t)
	if len(w.past) != 3 {
		t.Errorf("there were %d different sets of roots, want 3: first, both, second", len(w.past))
	}
}
