//go:build e2e

package spiresecret_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

const (
	node = "spiffe://example.org/node"
	ttl  = 20 * time.Second
)

// spire is a real SPIRE server, and an agent of it.
type spire struct {
	t      *testing.T
	dir    string
	bin    string
	port   string
	server *proctest.Process
	agent  *proctest.Process
}

// startSPIRE starts a server. Its agent is away.
func startSPIRE(t *testing.T) *spire {
	t.Helper()
	return startServer(t, "example.org", "")
}

// startServer starts the server of a trust domain, with more settings of its own.
func startServer(t *testing.T, trustDomain, more string) *spire {
	t.Helper()
	bin := os.Getenv("COUNTERSIGN_SPIRE")
	if bin == "" {
		t.Fatal("COUNTERSIGN_SPIRE does not name the folder of SPIRE's programs: `make check NAME=spire` builds them")
	}
	s := &spire{t: t, dir: proctest.Folder(t), bin: bin, port: proctest.FreePort(t)}
	s.write("server.conf", `
server {
  bind_address = "127.0.0.1"
  bind_port = "%s"
  socket_path = "%s"
  trust_domain = "%s"
  data_dir = "%s"
  log_level = "WARN"
  %s
}
plugins {
  DataStore "sql" { plugin_data { database_type = "sqlite3", connection_string = "%s" } }
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "memory" { plugin_data = {} }
}`, s.port, s.path("server.sock"), trustDomain, s.path("server"), more, s.path("store.sqlite3"))
	s.write("agent.conf", `
agent {
  data_dir = "%s"
  log_level = "WARN"
  server_address = "127.0.0.1"
  server_port = "%s"
  socket_path = "%s"
  trust_domain = "example.org"
  insecure_bootstrap = true
  experimental { sync_interval = "1s" }
}
plugins {
  NodeAttestor "join_token" { plugin_data {} }
  KeyManager "disk" { plugin_data { directory = "%s" } }
  WorkloadAttestor "unix" { plugin_data {} }
}`, s.path("agent"), s.port, s.socket(), s.path("agent"))
	s.startServer()
	return s
}

func (s *spire) startServer() {
	s.t.Helper()
	s.server = proctest.Start(s.t, exec.Command(s.program("spire-server"), "run", "-config", s.path("server.conf")))
	s.poll("SPIRE's server", func() bool { return s.try("healthcheck") == nil })
}

func (s *spire) path(name string) string    { return filepath.Join(s.dir, name) }
func (s *spire) program(name string) string { return filepath.Join(s.bin, name) }
func (s *spire) socket() string             { return s.path("api.sock") }

func (s *spire) write(name, format string, args ...any) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), fmt.Appendf(nil, format, args...), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *spire) poll(what string, done func() bool) {
	s.t.Helper()
	polling.Until(s.t, patience, what, done)
}

// command runs a command of the server and decodes what it prints.
func (s *spire) command(into any, args ...string) {
	s.t.Helper()
	out, err := s.run(append(args, "-output", "json"))
	if err == nil && into != nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		s.t.Fatalf("spire-server %q: %v\n%s", args, err, out)
	}
}

func (s *spire) try(args ...string) error {
	_, err := s.run(args)
	return err
}

func (s *spire) run(args []string) ([]byte, error) {
	return exec.Command(s.program("spire-server"), append(args, "-socketPath", s.path("server.sock"))...).CombinedOutput()
}

// attest starts the agent with a new token.
func (s *spire) attest() {
	s.t.Helper()
	var token struct{ Value string }
	s.command(&token, "token", "generate", "-spiffeID", node)
	s.startAgent("-joinToken", token.Value)
}

func (s *spire) startAgent(args ...string) {
	s.t.Helper()
	s.agent = proctest.Start(s.t, exec.Command(s.program("spire-agent"), append([]string{"run", "-config", s.path("agent.conf")}, args...)...))
}

// register entitles this test to an identity.
func (s *spire) register(id string, more ...string) {
	s.t.Helper()
	s.command(nil, append([]string{
		"entry", "create", "-parentID", node, "-spiffeID", id, "-selector", fmt.Sprintf("unix:uid:%d", os.Getuid()),
		"-x509SVIDTTL", fmt.Sprint(int(ttl.Seconds())),
	}, more...)...)
}

// follower is a source of the real agent.
type follower struct {
	*spiresecret.Source
	s   *spire
	log *logtest.Log
}

func (s *spire) follow(specs ...spiresecret.Spec) *follower {
	s.t.Helper()
	f := &follower{s: s, log: &logtest.Log{}}
	var err error
	f.Source, err = spiresecret.New(spiresecret.Config{Socket: s.socket(), Secrets: specs, Log: f.log.Logger()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(f.log)
		}
		if err := f.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return f
}

// await waits for an item of which good is true.
func (f *follower) await(what, name string, good func(*secret.Item) bool) (item *secret.Item) {
	f.s.t.Helper()
	f.s.poll(what, func() bool {
		var err error
		item, err = f.Peek(agent, name)
		return err == nil && good(item)
	})
	return item
}

func (f *follower) awaitFault(reason string) {
	f.s.t.Helper()
	f.s.poll("the failure "+reason, func() bool {
		failure := f.Status()[0].Failure
		return failure != nil && failure.Reason == reason
	})
}

func some(*secret.Item) bool { return true }

func anotherThan(old *secret.Item) func(*secret.Item) bool {
	return func(item *secret.Item) bool { return item.Version != old.Version }
}

func TestRealAgentComesLateRotatesAndRestarts(t *testing.T) {
	s := startSPIRE(t)
	f := s.follow()
	f.awaitFault("unavailable")
	s.attest()
	f.awaitFault("denied")
	s.register(web, "-dns", "web.example.org")
	first := f.await("the first certificate", "default", some)
	if got := first.Identity.String(); got != web+", web.example.org" {
		t.Errorf("the names are %s", got)
	}
	f.handshake()
	second := f.await("the second certificate", "default", anotherThan(first))
	f.handshake()

	s.agent.Kill()
	f.awaitFault("unavailable")
	if held, err := f.Peek(agent, "default"); err != nil || held.NotAfter.Before(second.NotAfter) {
		t.Errorf("while the agent is away: %v, %v", held, err)
	}
	held := f.await("what is held", "ROOTCA", some)
	s.startAgent()
	f.await("a certificate after the restart", "default", anotherThan(second))
	if f.await("the roots", "ROOTCA", some).Version != held.Version {
		t.Error("the roots have changed")
	}
	f.handshake()
}

func TestRealAgentThatHangsIsReportedAndLeft(t *testing.T) {
	s := startSPIRE(t)
	s.attest()
	s.register(web)
	s.follow().await("a certificate", "default", some)
	s.agent.Signal(syscall.SIGSTOP)
	f := s.follow()
	f.awaitFault("unavailable") // it connects, and no HTTP/2 comes
	s.agent.Signal(syscall.SIGCONT)
	f.await("a certificate", "default", some)
}

func TestRealHintsSelect(t *testing.T) {
	s := startSPIRE(t)
	s.attest()
	s.register(web, "-hint", "external")
	s.register("spiffe://example.org/admin", "-hint", "internal")
	f := s.follow(
		spiresecret.Spec{Name: "byhint", Kind: secret.KeyPair, Hint: "internal"},
		spiresecret.Spec{Name: "byid", Kind: secret.KeyPair, SPIFFEID: web},
		spiresecret.Spec{Name: "roots", Kind: secret.TrustBundle, TrustDomain: "example.org"})
	for name, id := range map[string]string{"byhint": "spiffe://example.org/admin", "byid": web} {
		if got := f.await(name, name, some).Identity.SPIFFEID.String(); got != id {
			t.Errorf("%s is %s", name, got)
		}
	}
	f.await("the roots", "roots", some)
}

// SPIRE tells a root before it signs under it.
func TestRealRootRotationIsFollowed(t *testing.T) {
	s := startSPIRE(t)
	s.attest()
	s.register(web)
	f := s.follow()
	first := f.await("a certificate", "default", some)
	var prepared struct {
		Authority struct {
			ID string `json:"authority_id"`
		} `json:"prepared_authority"`
	}
	s.command(&prepared, "localauthority", "x509", "prepare")
	f.await("both roots", "ROOTCA", func(item *secret.Item) bool { return len(item.RootFingerprints) == 2 })
	s.command(nil, "localauthority", "x509", "activate", "-authorityID", prepared.Authority.ID)
	f.await("a certificate under the new root", "default", func(item *secret.Item) bool { return item.RootFingerprint != first.RootFingerprint })
	f.handshake()
}

// handshake proves that two programs with these secrets trust each other.
func (f *follower) handshake() {
	t := f.s.t
	t.Helper()
	both := tlsconfig.Options{Source: f, Certificate: "default", Roots: "ROOTCA", Peer: tlsconfig.TrustDomain("example.org")}
	server, err := tlsconfig.Server(both)
	must(t, err)
	client, err := tlsconfig.Client(both)
	must(t, err)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	done := make(chan error, 1)
	go func() { done <- tls.Server(far, server).Handshake() }()
	if err := errors.Join(tls.Client(near, client).Handshake(), <-done); err != nil {
		t.Error(err)
	}
}
