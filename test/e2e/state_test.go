package e2e

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// killDuringAnOutage returns an agent that was killed after its CA went away, and the
// certificates that it held.
func killDuringAnOutage(t *testing.T) (a *agent, server, client *x509.Certificate) {
	t.Helper()
	a = startAgent(t, agentConfig{state: true})
	first, second := startWorkload(t, a.socket, "default"), startWorkload(t, a.socket, "client")
	a.setOutage(t, true)
	for _, name := range []string{"default", "client"} {
		a.log.await(t, "cannot renew certificate", "unavailable", name) // so that none is on its way
	}
	poll(t, "both key pairs, the roots and the log of names to be stored", func() bool {
		found := entries(t, a.stateDir())
		return len(found) == 4 && !slices.ContainsFunc(found, func(path string) bool { return strings.HasPrefix(filepath.Base(path), ".") })
	})
	a.stop(t, syscall.SIGKILL)
	return a, first.certificate().Leaf, second.certificate().Leaf
}

func TestKilledAgentServesStoredSecretsWithoutCA(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	a, server, client := killDuringAnOutage(t)
	a.start(t)
	w := startWorkload(t, a.socket, "client")
	if !w.certificate().Leaf.Equal(client) {
		t.Errorf("got serial %x, want %x", w.certificate().Leaf.SerialNumber, client.SerialNumber)
	}
	envoy := startEnvoy(t, a.socket, stateOfTheWorld, "default")
	p := startProber(t, w, envoy.address(t), envoyID)
	p.awaitHandshakes(t, 5)
	if !p.server().Equal(server) {
		t.Errorf("Envoy shows serial %x, want %x", p.server().SerialNumber, server.SerialNumber)
	}
	if n := a.metric(t, "countersign_secret_restored_total"); n != 2 {
		t.Errorf("%v secrets are counted as those of the last run", n)
	}
	if page := getPage(t, a.status, "/"); !strings.Contains(page, "from the last run") {
		t.Error("the page does not say where the secrets are from")
	}
	a.setOutage(t, false)
	p.awaitRotation(t)
	p.awaitHandshakes(t, 20)
	p.noFailures(t)
}

func TestAgentWithTamperedStateStartsWithoutIt(t *testing.T) {
	t.Parallel()
	a, _, _ := killDuringAnOutage(t)
	for _, file := range entries(t, a.stateDir()) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		content[len(content)-1] ^= 1
		writeWhole(t, file, content)
	}
	a.start(t)
	a.log.await(t, "a record could not be read, and is ignored", "cannot be decrypted")
	if n := a.metric(t, "countersign_secret_restored_total"); n != 0 {
		t.Errorf("%v secrets are counted as those of the last run", n)
	}
	a.setOutage(t, false)
	startWorkload(t, a.socket, "client")
}

func TestAgentWithReadableStateKeyDoesNotStart(t *testing.T) {
	t.Parallel()
	a := prepareAgent(t, agentConfig{state: true})
	if err := os.Chmod(filepath.Join(a.dir, "state.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, filepath.Join(a.bin, "countersign"), "agent", "--config", a.config())
	p.log.await(t, "state.key_file", "chmod go-rwx")
	<-p.Done()
	if code := p.cmd.ProcessState.ExitCode(); code != 2 {
		t.Errorf("it exits with %d, want 2", code)
	}
}
