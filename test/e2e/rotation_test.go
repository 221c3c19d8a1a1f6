package e2e

import (
	"crypto"
	"crypto/x509"
	"testing"
)

// setup is an agent with an Envoy, and a client that shakes hands all the time.
func setup(t *testing.T, api apiType) (*agent, *envoy, *prober) {
	t.Helper()
	return setupWith(t, api, agentConfig{})
}

func setupWith(t *testing.T, api apiType, config agentConfig) (*agent, *envoy, *prober) {
	t.Helper()
	needEnvoy(t)
	a := startAgent(t, config)
	e := startEnvoy(t, a.socket, api, "default")
	w := startWorkload(t, a.socket, "client")
	return a, e, startProber(t, w, e.address(t), envoyID)
}

func TestEnvoyRotatesWithoutFailedHandshake(t *testing.T) {
	byEachAPI(t, showsEachNewCertificate)
}

func showsEachNewCertificate(t *testing.T, api apiType) {
	_, _, p := setup(t, api)
	seen := []*x509.Certificate{p.server()}
	for range 3 {
		seen = append(seen, p.awaitRotation(t))
	}
	p.awaitHandshakes(t, 20)
	p.noFailures(t)
	for i, cert := range seen[1:] {
		before := seen[i]
		if !cert.NotAfter.After(before.NotAfter) {
			t.Errorf("rotation %d: valid until %s, the one before until %s", i+1, cert.NotAfter, before.NotAfter)
		}
		if samePublicKey(cert, before) {
			t.Errorf("rotation %d has the key of the one before", i+1)
		}
	}
}

func samePublicKey(a, b *x509.Certificate) bool {
	key, ok := a.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b.PublicKey)
}

func TestKilledProviderCostsNoHandshakeOrRotation(t *testing.T) {
	t.Parallel()
	a, _, p := setup(t, stateOfTheWorld)
	// A fifth crash would open the circuit, for longer than a certificate lives here.
	for range 3 {
		killed := a.killProvider(t)
		p.awaitRotation(t)
		if pid := a.provider(t, killed); pid == killed {
			t.Errorf("the provider that was killed (pid %d) is alive", pid)
		}
	}
	p.awaitHandshakes(t, 20)
	p.noFailures(t)
}
