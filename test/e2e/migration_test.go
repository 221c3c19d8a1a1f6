package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Two agents move to a CA under another name, one after the other at each step, as
// docs/operators.md says. At the end, the old root goes with its entry, or stays for the
// overlap where the entry of an agent had one.
func TestMoveToOtherCACostsNoHandshake(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	old, next := proctest.Folder(t), proctest.Folder(t)
	oldRoot, nextRoot := pki.NewBundle(writeCA(t, old, "old root")), pki.NewBundle(writeCA(t, next, "next root"))
	both := oldRoot.Union(nextRoot)
	agents := []*agent{startAgent(t, agentConfig{first: old}), startAgent(t, agentConfig{first: old})}
	var workloads []*workload
	var probers []*prober
	for _, a := range agents {
		workloads = append(workloads, startWorkload(t, a.socket, "client"))
	}
	for i, api := range []apiType{stateOfTheWorld, incremental} {
		e := startEnvoy(t, agents[i].socket, api, "default")
		probers = append(probers, startProber(t, workloads[1-i], e.address(t), envoyID))
	}

	overlaps := []string{"1h", "0s"} // the first outlasts the test
	for i, a := range agents {
		a.reconfigure(t, func(c map[string]any) {
			first := c["providers"].([]any)[0].(map[string]any)
			entry := maps.Clone(first)
			entry["name"], entry["provider"], entry["settings"] = "next", "moody", maps.Clone(entry["settings"].(map[string]any))
			entry["settings"].(map[string]any)["dir"] = next
			first["root_overlap"] = overlaps[i]
			c["providers"] = append(c["providers"].([]any), entry)
			c["secrets"] = append(c["secrets"].([]any), map[string]any{"name": "ROOTCA", "providers": []string{"moody", "next"}})
			c["default_provider"] = "moody"
		})
		poll(t, "the next CA's root", func() bool { return a.metric(t, "countersign_authority_roots", `authority="next"`) == 1 })
		workloads[i].await(t, "both roots", func() bool { return workloads[i].roots.Equal(both) })
	}
	for i, a := range agents {
		a.reconfigure(t, func(c map[string]any) { c["default_provider"] = "next" })
		probers[i].awaitSigner(t, "next root")
		workloads[i].await(t, "a certificate of the next CA", func() bool { return workloads[i].pair.Leaf.Issuer.CommonName == "next root" })
		probers[1-i].awaitHandshakes(t, 10)
	}
	for i, a := range agents {
		a.reconfigure(t, func(c map[string]any) {
			c["providers"] = c["providers"].([]any)[1:]
			c["secrets"].([]any)[2].(map[string]any)["providers"] = []string{"next"}
		})
		poll(t, "the old CA's provider to be gone", func() bool { return len(children(t, a.PID())) == 1 })
		probers[i].awaitHandshakes(t, 10)
	}
	workloads[1].await(t, "the next root alone", func() bool { return workloads[1].roots.Equal(nextRoot) })
	if !workloads[0].bundle().Equal(both) {
		t.Error("the old root did not stay for the overlap")
	}
	for _, p := range probers {
		p.noFailures(t)
	}
}

// reconfigure changes the agent's configuration while it runs.
func (a *agent) reconfigure(t *testing.T, change func(config map[string]any)) {
	t.Helper()
	a.edit(t, change)
	a.Signal(syscall.SIGHUP)
}

// edit changes the agent's configuration file.
func (a *agent) edit(t *testing.T, change func(config map[string]any)) {
	t.Helper()
	content, err := os.ReadFile(a.config())
	mustDo(t, err)
	config := map[string]any{}
	mustDo(t, json.Unmarshal(content, &config))
	change(config)
	content, err = json.Marshal(config)
	mustDo(t, err)
	writeWhole(t, a.config(), content)
}
