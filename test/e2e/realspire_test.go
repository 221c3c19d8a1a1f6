//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// spireInstallation is a real SPIRE server and an agent of it, which attests by user.
type spireInstallation struct {
	bin, dir string
	bundle   string // address of the server's bundle endpoint
	server   *process
	agent    *process
}

const (
	spireNode = "spiffe://" + trustDomain + "/node"
	spireTTL  = "20" // seconds: SPIRE renews at half of it
)

// startSPIRE starts both, and entitles the test's user to Envoy's SPIFFE ID.
func startSPIRE(t *testing.T) *spireInstallation {
	t.Helper()
	return startSPIREWith(t, func(*spireInstallation) string { return "" })
}

// startSPIREWith is startSPIRE with more experimental settings of the agent.
func startSPIREWith(t *testing.T, experimental func(*spireInstallation) string) *spireInstallation {
	t.Helper()
	s := &spireInstallation{bin: programs.Foreign(t, "COUNTERSIGN_SPIRE"), dir: proctest.Folder(t)}
	port, endpoint := proctest.FreePort(t), proctest.FreePort(t)
	s.bundle = net.JoinHostPort("127.0.0.1", endpoint)
	writeWhole(t, s.path("server.conf"), fmt.Appendf(nil, `
server {
  bind_address = "127.0.0.1"
  bind_port = %q
  socket_path = %q
  trust_domain = %q
  data_dir = %q
  log_level = "WARN"
  federation { bundle_endpoint { address = "127.0.0.1", port = %s, refresh_hint = "2s", profile "https_spiffe" {} } }
}
plugins {
  DataStore "sql" { plugin_data { database_type = "sqlite3", connection_string = %q } }
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "memory" { plugin_data = {} }
}`, port, s.path("server.sock"), trustDomain, s.path("server"), endpoint, s.path("store.sqlite3")))
	writeWhole(t, s.path("agent.conf"), fmt.Appendf(nil, `
agent {
  data_dir = %q
  log_level = "WARN"
  server_address = "127.0.0.1"
  server_port = %q
  socket_path = %q
  trust_domain = %q
  insecure_bootstrap = true
  experimental {
    sync_interval = "1s"
    %s
  }
}
plugins {
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "disk" { plugin_data { directory = %q } }
  WorkloadAttestor "unix" { plugin_data { discover_workload_path = true } }
}`, s.path("agent"), port, s.socket(), trustDomain, experimental(s), s.path("agent")))
	s.server = startProcess(t, filepath.Join(s.bin, "spire-server"), "run", "-config", s.path("server.conf"))
	poll(t, "SPIRE's server", func() bool { _, err := s.try("healthcheck"); return err == nil })
	var token struct{ Value string }
	mustDo(t, json.Unmarshal(s.command(t, "token", "generate", "-spiffeID", spireNode, "-output", "json"), &token))
	s.startAgent(t, "-joinToken", token.Value)
	s.command(t, "entry", "create", "-parentID", spireNode, "-spiffeID", envoyID,
		"-selector", fmt.Sprintf("unix:uid:%d", os.Getuid()), "-x509SVIDTTL", spireTTL)
	return s
}

func (s *spireInstallation) path(name string) string { return filepath.Join(s.dir, name) }
func (s *spireInstallation) socket() string          { return s.path("api.sock") }

// startAgent starts SPIRE's agent, the first time with a token.
func (s *spireInstallation) startAgent(t *testing.T, more ...string) {
	t.Helper()
	s.agent = startProcess(t, filepath.Join(s.bin, "spire-agent"), append([]string{"run", "-config", s.path("agent.conf")}, more...)...)
}

// try runs a command of SPIRE's server.
func (s *spireInstallation) try(args ...string) ([]byte, error) {
	return exec.Command(filepath.Join(s.bin, "spire-server"), append(args, "-socketPath", s.path("server.sock"))...).CombinedOutput()
}

func (s *spireInstallation) command(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := s.try(args...)
	if err != nil {
		t.Fatalf("spire-server %s: %v\n%s", args[0], err, out)
	}
	return out
}

// startAgentOf starts an agent that has nothing but SPIRE: what it holds is on its SDS socket, and in
// the files of a folder.
func startAgentOf(t *testing.T, spire *spireInstallation, folder string) *agent {
	t.Helper()
	a := prepareAgent(t, agentConfig{})
	content, err := json.Marshal(map[string]any{
		"runtime_dir": a.runtimeDir(),
		"spire":       map[string]any{"socket": "unix://" + spire.socket()},
		"socket":      map[string]any{"path": a.socket},
		"status":      map[string]any{"address": "unix:" + a.statusSocket()},
		"outputs":     []map[string]any{{"name": "flat", "folder": folder}},
	})
	mustDo(t, err)
	writeWhole(t, a.config(), content)
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)
	return a
}

// Over SDS and in files is the same, through renewals and while SPIRE's agent is away.
func TestRealSPIREIsServedOverSDSAndInFiles(t *testing.T) {
	t.Parallel()
	s, folder := startSPIRE(t), proctest.Folder(t)
	roots, err := pki.ParseBundle(s.command(t, "bundle", "show"))
	mustDo(t, err)
	a := startAgentOf(t, s, folder)
	w := startWorkload(t, a.socket, "default")
	check := func() *tls.Certificate {
		t.Helper()
		held := mustBeInFiles(t, w, folder)
		chain, err := x509.ParseCertificates(bytes.Join(held.Certificate, nil))
		mustDo(t, err)
		if err := w.verify(chain, envoyID); err != nil || !w.bundle().Equal(roots) {
			t.Errorf("over SDS: %v; its roots are %v, SPIRE's %v", err, w.bundle().Fingerprints(), roots.Fingerprints())
		}
		return held
	}
	another := func(held *tls.Certificate) func() bool {
		return func() bool { return w.pair.Leaf.NotAfter.After(held.Leaf.NotAfter) }
	}
	first := check()
	w.await(t, "a renewed certificate", another(first))
	check()

	s.agent.Kill()
	poll(t, "the failure in /metrics", func() bool {
		return a.metric(t, "countersign_failures_total", `authority="SPIFFE Workload API"`, `reason="unavailable"`) >= 1
	})
	held := check()
	if newcomer := startWorkload(t, a.socket, "default").certificate(); !newcomer.Leaf.Equal(held.Leaf) {
		t.Error("a new stream has another certificate while SPIRE is away")
	}
	s.startAgent(t)
	w.await(t, "a certificate after the restart", another(held))
	check()
}

// mustBeInFiles waits until the folder has what the workload has over SDS, and returns that.
func mustBeInFiles(t *testing.T, w *workload, folder string) (held *tls.Certificate) {
	t.Helper()
	poll(t, "the files to have what SDS has", func() bool {
		held = w.certificate()
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "cert-chain.pem"), filepath.Join(folder, "key.pem"))
		if err != nil || !bytes.Equal(bytes.Join(pair.Certificate, nil), bytes.Join(held.Certificate, nil)) {
			return false
		}
		text, err := os.ReadFile(filepath.Join(folder, "root-cert.pem"))
		mustDo(t, err)
		roots, err := pki.ParseBundle(text)
		return err == nil && roots.Equal(w.bundle())
	})
	return held
}

// SPIRE's server and an agent of another trust domain federate, each over the other's endpoint, and
// follow a changed root of either.
func TestRealSPIREFederatesWithTheAgentBothWays(t *testing.T) {
	t.Parallel()
	s := startSPIRE(t)
	const partner = "partner.example"
	address, folder := net.JoinHostPort("127.0.0.1", proctest.FreePort(t)), proctest.Folder(t)
	initial := filepath.Join(folder, "spire.pem")
	writeWhole(t, initial, s.command(t, "bundle", "show"))
	a := prepareAgent(t, agentConfig{
		domain: partner, state: true, outputs: []map[string]any{{"name": "foreign", "folder": folder, "bundle": trustDomain}}, publish: map[string]any{"address": address, "url": "https://" + partner + "/"},
		workload:  map[string]any{"name": "default", "spiffe_id": "spiffe://" + partner + "/endpoint"},
		endpoints: []map[string]any{{"trust_domain": trustDomain, "url": "https://" + s.bundle, "server_id": "spiffe://" + trustDomain + "/spire/server", "initial_file": initial}},
	})
	a.status = unixHTTP(t, a.statusSocket())
	a.start(t)

	w := startWorkload(t, a.socket, "default")
	ours := filepath.Join(folder, "ours.pem")
	writeWhole(t, ours, w.bundle().PEM())
	s.command(t, "federation", "create", "-trustDomain", partner, "-bundleEndpointURL", "https://"+address, "-bundleEndpointProfile", "https_spiffe",
		"-endpointSpiffeID", "spiffe://"+partner+"/endpoint", "-trustDomainBundlePath", ours, "-trustDomainBundleFormat", "pem")
	_, signs := a.announceRoot(t, w)
	follows := func() bool {
		if _, err := s.try("federation", "refresh", "-id", partner); err != nil {
			return false
		}
		theirs, err := pki.ParseBundle(s.command(t, "bundle", "list", "-id", "spiffe://"+partner))
		return err == nil && theirs.Equal(w.bundle())
	}
	poll(t, "SPIRE to have the agent's next root", follows)
	signs()
	w.await(t, "a certificate by the next root", func() bool { return w.pair.Leaf.Issuer.CommonName == "second root" })
	poll(t, "SPIRE to follow an endpoint by the next root", follows)

	s.command(t, "localauthority", "x509", "prepare")
	theirs, err := pki.ParseBundle(s.command(t, "bundle", "show"))
	mustDo(t, err)
	if theirs.Len() != 2 {
		t.Fatalf("SPIRE has %d roots after it prepared another", theirs.Len())
	}
	a.stop(t, syscall.SIGTERM) // it asks at the start, and then by the refresh hint
	a.start(t)
	poll(t, "the agent to have SPIRE's next root", func() bool {
		text, err := os.ReadFile(filepath.Join(folder, "root-cert.pem"))
		if err != nil {
			return false
		}
		roots, err := pki.ParseBundle(text)
		return err == nil && roots.Equal(theirs)
	})

	// SPIRE refuses a bundle with a use that it does not know, so WIT keys are published only if asked for.
	a.stop(t, syscall.SIGTERM)
	a.edit(t, func(config map[string]any) {
		config["experimental"] = []string{"wit-svid", "wit-bundle"}
		config["workload_api"] = map[string]any{"socket": filepath.Join(folder, "spiffe")}
	})
	a.start(t)
	poll(t, "SPIRE to refuse a bundle with WIT keys", func() bool {
		_, _ = s.try("federation", "refresh", "-id", partner)
		return strings.Contains(s.server.Log.String(), `unrecognized use \"wit-svid\"`)
	})
}
