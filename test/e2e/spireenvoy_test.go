package e2e

import (
	_ "embed"
	"syscall"
	"testing"
)

//go:embed envoy/spire.yaml
var spireBootstrap string

// It has none of the settings that our own bootstraps have for a restart: Envoy's back-off is its
// default, up to 30 s, and a certificate of a test may expire meanwhile.
func TestEnvoyConfiguredForSPIREComesBackAfterTheAgent(t *testing.T) {
	needEnvoy(t)
	t.Parallel()
	a := startAgent(t, agentConfig{})
	e := runEnvoy(t, spireBootstrap, map[string]string{"Socket": a.socket, "ID": envoyID, "Peer": clientID, "TrustDomain": trustDomain})
	address := e.address(t)
	p := startProber(t, startWorkload(t, a.socket, "client"), address, envoyID)
	p.awaitCertificates(t, 2)
	p.noFailures(t)
	a.stop(t, syscall.SIGKILL)
	p.mu.Lock()
	before := p.different()
	p.mu.Unlock()
	a.start(t)
	p.awaitCertificates(t, before+2) // one may have been under way
	if _, err := p.once(t.Context()); err != nil {
		t.Error(err)
	}
}
