package e2e

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// Each rotation goes a long way: it is written to files, these are seen to change,
// and what is read of them is pushed to Envoy, which knows them by their name.
func TestEnvoyShowsEachCertificateWrittenToFiles(t *testing.T) {
	byEachAPI(t, showsFiles)
}

func showsFiles(t *testing.T, api apiType) {
	needEnvoy(t)
	folder := proctest.Folder(t)
	a := startAgent(t, agentConfig{
		files:   map[string]any{"folders": []string{folder}},
		outputs: []map[string]any{{"name": "flat", "folder": folder}},
	})
	chain, key := filepath.Join(folder, "cert-chain.pem"), filepath.Join(folder, "key.pem")
	e := startEnvoy(t, a.socket, api, "file-cert:"+chain+"~"+key)
	p := startProber(t, startWorkload(t, a.socket, "client"), e.address(t), envoyID)
	for range 3 {
		p.awaitRotation(t)
	}
	p.noFailures(t)
	if _, err := tls.LoadX509KeyPair(chain, key); err != nil {
		t.Error(err)
	}
	poll(t, "the writes in /metrics", func() bool {
		return a.metric(t, "countersign_output_events_total", `output="flat"`, `event="written"`) >= 3
	})
}

func TestFilesRotateWithoutConnections(t *testing.T) {
	t.Parallel()
	folder := proctest.Folder(t)
	a := startAgent(t, agentConfig{outputs: []map[string]any{{
		"name": "set", "folder": folder, "link": "current",
		"files":  []map[string]any{{"name": "tls.crt", "content": "chain"}, {"name": "tls.key", "content": "key"}, {"name": "roots.p12", "content": "pkcs12-truststore"}},
		"reload": map[string]any{"command": []string{"/bin/echo", "reloaded"}},
	}}})
	seen := map[string]bool{}
	poll(t, "three certificates", func() bool {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "current", "tls.crt"), filepath.Join(folder, "current", "tls.key"))
		if err == nil {
			seen[pair.Leaf.SerialNumber.String()] = true
		}
		return len(seen) == 3
	})
	a.log.await(t, "command output", "reloaded")
}
