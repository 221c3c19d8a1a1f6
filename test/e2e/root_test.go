package e2e

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestRootRotationCostsNoHandshake(t *testing.T) {
	byEachAPI(t, rotatesTheRoot)
}

func rotatesTheRoot(t *testing.T, api apiType) {
	needEnvoy(t)
	a := startAgent(t, agentConfig{})
	e := startEnvoy(t, a.socket, api, "default")
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
