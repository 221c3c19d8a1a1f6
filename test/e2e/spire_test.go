package e2e

import (
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// One agent takes what another serves over the Workload API, as it would from SPIRE's agent,
// and serves it over SDS beside what its own CA signs.
func TestSecretsOfAWorkloadAPIAreServedOverSDS(t *testing.T) {
	t.Parallel()
	api := filepath.Join(proctest.Folder(t), "workload.sock")
	b := startAgent(t, agentConfig{spire: map[string]any{
		"socket":  "unix://" + api,
		"secrets": []map[string]any{{"name": "web", "spiffe_id": envoyID}, {"name": "theirs", "kind": "trust-bundle", "spiffe_id": envoyID}},
	}})
	a := startAgent(t, agentConfig{workloadAPI: map[string]any{"socket": api}}) // after b
	w := startWorkload(t, b.socket, "web")
	first := w.certificate().Leaf.SerialNumber.String()
	w.await(t, "another certificate", func() bool { return w.pair.Leaf.SerialNumber.String() != first })
	poll(t, "rotations in /metrics", func() bool {
		return b.metric(t, "countersign_secret_rotations_total", `secret="web"`, `authority="SPIFFE Workload API"`) >= 2
	})
	a.Kill()
	poll(t, "the failure in /metrics", func() bool {
		return b.metric(t, "countersign_failures_total", `authority="SPIFFE Workload API"`, `reason="unavailable"`) >= 1
	})
	a.start(t)
	held := w.certificate().Leaf.SerialNumber.String()
	w.await(t, "a certificate after the restart", func() bool { return w.pair.Leaf.SerialNumber.String() != held })
}

// Envoy's certificate is another agent's, over the Workload API. While that is away, the CA of
// this one signs.
func TestCASignsWhileTheWorkloadAPIIsAway(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	api := filepath.Join(proctest.Folder(t), "workload.sock")
	first, second := proctest.Folder(t), proctest.Folder(t)
	writeCA(t, first, "first root")
	writeCA(t, second, "second root")
	a := startAgent(t, agentConfig{first: first, workloadAPI: map[string]any{"socket": api}})
	b := startAgent(t, agentConfig{
		selfSigned: true, first: second, state: true, spire: map[string]any{"socket": api},
		workload: map[string]any{"name": "default", "spiffe_id": envoyID, "providers": []string{"spire", "file"}, "fallback_after": "1s"},
	})
	w := startWorkload(t, b.socket, "client")
	w.await(t, "the roots of both", func() bool { return w.roots.Len() == 2 })
	envoy := startEnvoy(t, b.socket, stateOfTheWorld, "default")
	p := startProber(t, w, envoy.address(t), envoyID)
	p.awaitSigner(t, "first root")
	for range 2 {
		a.Kill()
		p.awaitSigner(t, "second root")
		p.awaitHandshakes(t, 10)
		a.start(t)
		p.awaitSigner(t, "first root")
		p.awaitHandshakes(t, 10)
	}
	p.noFailures(t)
	b.log.await(t, "authority unavailable, trying the next one", "authority=spire", "next=file")
	if n := b.metric(t, "countersign_secret_rotations_total", `secret="default"`, `authority="spire"`); n < 3 {
		t.Errorf("/metrics has %v certificates of the Workload API", n)
	}
}
