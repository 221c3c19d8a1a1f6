package e2e

import (
	"testing"

	"crypto/x509"
)

// Envoy refuses a certificate without a key: that is what it gets where somebody
// writes the name of a trust bundle for that of a certificate.
func TestEnvoyNACKIsLoggedAndAffectsNothingElse(t *testing.T) {
	byEachAPI(t, refusesARootForACertificate)
}

func refusesARootForACertificate(t *testing.T, api apiType) {
	a, _, p := setup(t, api)
	wrong := startEnvoy(t, a.socket, api, "ROOTCA")
	wrong.log.await(t, "rejected")
	line := a.log.await(t, "refused a version")
	if !containsAll(line, []string{"incomplete private key", "names=ROOTCA"}) {
		t.Errorf("the log does not say what, or why: %s", line)
	}
	poll(t, "the refusal in /metrics", func() bool { return a.metric(t, "countersign_stream_events_total", `event="nacked"`) >= 1 })
	p.awaitRotation(t)
	p.noFailures(t)
	if n := a.metric(t, "countersign_stream_events_total", `event="nacked"`); n != 1 {
		t.Errorf("one refusal was counted as %v: it is sent again", n)
	}
}

// Envoy 1.40 has Ed25519, unlike earlier ones.
func TestEnvoyServesEd25519Key(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	a := startAgent(t, agentConfig{secrets: []map[string]any{
		{"name": "ed25519", "spiffe_id": envoyID, "key_type": "ed25519"},
	}})
	e := startEnvoy(t, a.socket, stateOfTheWorld, "ed25519")
	p := startProber(t, startWorkload(t, a.socket, "client"), e.address(t), envoyID)
	if got := p.server().PublicKeyAlgorithm; got != x509.Ed25519 {
		t.Errorf("Envoy shows a key of the kind %s", got)
	}
	p.awaitRotation(t)
	p.noFailures(t)
}
