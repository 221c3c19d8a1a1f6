package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestEnvoyKeepsItsCertificateWithoutAgent(t *testing.T) {
	byEachAPI(t, keepsItsCertificate)
}

func keepsItsCertificate(t *testing.T, api apiType) {
	for _, with := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(with.String(), func(t *testing.T) {
			t.Parallel()
			a, _, p := setup(t, api)
			a.stop(t, with)
			p.awaitHandshakes(t, 20)
			a.start(t)
			p.awaitRotation(t) // that of the new agent's first certificate
			p.awaitRotation(t)
			p.awaitHandshakes(t, 20)
			p.noFailures(t)
		})
	}
}

func TestSelfSignedCASurvivesRestart(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{selfSigned: true})
	w := startWorkload(t, a.socket, "client")
	old := w.certificate()
	a.stop(t, syscall.SIGTERM)
	a.start(t)
	w.await(t, "the new agent's certificate", func() bool { return !w.pair.Leaf.Equal(old.Leaf) })
	if len(w.past) != 1 {
		t.Errorf("there were %d different sets of roots", len(w.past))
	}
}

func TestKilledAgentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{})
	startWorkload(t, a.socket, "client")
	provider := a.provider(t, 0)

	a.stop(t, syscall.SIGKILL)
	poll(t, "the provider to have followed the agent", func() bool { return !alive(provider) })

	// The socket is still there and is replaced, what else was left is swept away.
	a.start(t)
	startWorkload(t, a.socket, "client")
	if found := entries(t, a.runtimeDir()); len(found) > 1 {
		t.Errorf("the runtime folder has %v: more than the one agent's that runs", found)
	}
	a.stop(t, syscall.SIGTERM)
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("after SIGTERM the agent exits with %d", code)
	}
	for _, dir := range []string{a.runtimeDir(), a.cmd.Dir} {
		if found := entries(t, dir); len(found) > 0 {
			t.Errorf("the agent left %v", found)
		}
	}
	for _, socket := range []string{a.socket, a.statusSocket()} {
		if _, err := os.Lstat(socket); err == nil {
			t.Errorf("the agent left %s", socket)
		}
	}
}

// entries returns what is in a folder.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
