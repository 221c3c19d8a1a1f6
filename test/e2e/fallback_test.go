package e2e

import (
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Two agents with the same two CAs: while the first CA is away for one of them, its
// certificates are the second's, and those of the other the first's.
func TestPeersUnderTwoCAsTrustEachOtherThroughOutages(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	first, second := proctest.Folder(t), proctest.Folder(t)
	writeCA(t, first, "first root")
	writeCA(t, second, "second root")
	both := agentConfig{first: first, standIn: second}
	patient := both
	patient.fallbackAfter = "30s" // its first CA may be slow on a busy machine, and is not away
	a, b := startAgent(t, both), startAgent(t, patient)
	aEnvoy, bEnvoy := startEnvoy(t, a.socket, stateOfTheWorld, "default"), startEnvoy(t, b.socket, incremental, "default")
	fromB := startProber(t, startWorkload(t, b.socket, "client"), aEnvoy.address(t), envoyID)
	fromA := startProber(t, startWorkload(t, a.socket, "client"), bEnvoy.address(t), envoyID)
	for range 2 {
		a.setOutage(t, true)
		fromB.awaitSigner(t, "second root")
		fromA.awaitHandshakes(t, 10)
		a.setOutage(t, false)
		fromB.awaitSigner(t, "first root")
		fromA.awaitHandshakes(t, 10)
	}
	fromA.noFailures(t)
	fromB.noFailures(t)
	a.log.await(t, "authority unavailable, trying the next one")
	if n := a.metric(t, "countersign_secret_rotations_total", `secret="default"`, `authority="file"`); n == 0 {
		t.Error("/metrics does not say who signed")
	}
	if n := b.metric(t, "countersign_secret_rotations_total", `authority="file"`); n != 0 {
		t.Errorf("the other agent asked the second CA %v times", n)
	}
}

// awaitSigner waits until Envoy shows a certificate of that CA.
func (p *prober) awaitSigner(t *testing.T, name string) {
	t.Helper()
	p.await(t, "Envoy to show a certificate of the "+name, func() bool { return p.last().Issuer.CommonName == name })
}
