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
