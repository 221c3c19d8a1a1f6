package googleca

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/testprogram"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// stockHost is the host's end as any go-plugin host has it.
type stockHost struct{ plugin.NetRPCUnsupportedPlugin }

func (stockHost) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host is no provider")
}

func (stockHost) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return wire.NewRemote(conn, wire.RemoteOptions{}), nil
}

// provider is the program, built once.
var provider = sync.OnceValues(func() (string, error) { return build("countersign-provider-google", "..") })

// build builds a program into the folder that goes with the tests.
func build(name, source string) (string, error) {
	binary := filepath.Join(scratch, "bin", name)
	return binary, testprogram.Build(binary, source, ".")
}

// run starts the provider by a stock go-plugin host, which logs to log.
func run(t *testing.T, log *logged) *wire.Remote {
	t.Helper()
	binary, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(binary)
	process.Env = append(os.Environ(), "GOOGLE_APPLICATION_CREDENTIALS="+filepath.Join(scratch, "none.json"), "GOOGLE_SDK_GO_LOGGING_LEVEL=debug")
	host := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: stockHost{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		Cmd:              process,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Trace}),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: t.TempDir()},
	})
	t.Cleanup(host.Kill)
	client, err := host.Client()
	if err != nil {
		t.Fatal(err)
	}
	remote, err := client.Dispense(wire.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	return remote.(*wire.Remote)
}

// socket has the service answer on a real one, too, and returns the settings for it.
func (s *service) socket(t *testing.T) Settings {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t, listener)
	settings := s.settings()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	settings.Endpoint = "localhost:" + port
	return settings
}

func TestAsAProcessItIsConfiguredSignsTellsItsRootsAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	server, log := start(t), &logged{}
	settings := server.socket(t)
	remote := run(t, log)
	ctx := within(t, time.Minute)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "google" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority, wire.RootSource, wire.RootWatcher, wire.TokenExchanger}) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{"protocol", "ca_pool", "issuing_ca", "certificate_template", "subject_mode", "labels", "roots_interval", "endpoint", "universe_domain", "root_file", "quota_project", "credentials", "credentials_file", "location", "exchange", "audience", "service_account", "sts_url", "iam_url", "allow_other_hosts"} {
		if !strings.Contains(metadata.SettingsSchema, `"`+setting+`"`) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": "mesh"}), ca.ErrInvalid, `ca_pool is "mesh": write projects/P/locations/L/caPools/N`)
	mustBe(t, remote.Configure(ctx, map[string]any{"capool": thePool}), ca.ErrInvalid, "did you mean ca_pool?")
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": thePool, "exchange": map[string]any{"audiense": theAudience}}), ca.ErrInvalid, "audience")
	mustBe(t, remote.Configure(ctx, map[string]any{"protocol": "meshca"}), ca.ErrInvalid, "endpoint is not set: the protocol meshca needs")
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": thePool}), ca.ErrUnavailable, "credentials adc", "none.json")
	if err := remote.Configure(ctx, map[string]any{"ca_pool": thePool, "endpoint": settings.Endpoint, "root_file": server.root, "credentials": "token"}); err != nil {
		t.Fatal(err)
	}
	req, check := ask(t)
	reply, err := remote.CSRSign(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	mustPass(t, reply, check)
	if got := server.last(t).metadata["authorization"]; got[0] != "Bearer "+theToken.Reveal() {
		t.Error("the token was not sent")
	}
	enough := errors.New("enough")
	if err := remote.WatchRoots(ctx, func(roots []byte) error {
		if string(roots) != string(server.pool.Bundle().PEM()) {
			t.Errorf("told %s", roots)
		}
		return enough
	}); !errors.Is(err, enough) {
		t.Error(err)
	}
	server.next(failing(busy(t, 8, "not for "+theToken.Reveal())))
	_, err = remote.CSRSign(ctx, req)
	mustBe(t, err, ca.ErrRateLimited, thePool+": not for (token)")
	if ca.RetryAfter(err) != time.Minute {
		t.Errorf("to come back after %s", ca.RetryAfter(err))
	}
	if text := log.take(); strings.Contains(text, theToken.Reveal()) || strings.Contains(text, "PRIVATE KEY") {
		t.Error("the token or a key is in the log")
	}
}

// agent runs `countersign agent` with one entry, this provider's, and a token file.
func agent(t *testing.T, dir string, settings Settings) (countersign string, log *logged) {
	t.Helper()
	entry := map[string]any{"name": "google", "token_file": filepath.Join(dir, "token"), "settings": settings}
	config := map[string]any{"providers": []any{entry}, "trust_domain": "example.org", "namespace": "shop", "service_account": "web", "ttl": "2s", "socket": map[string]any{"path": filepath.Join(dir, "s")}}
	write(t, filepath.Join(dir, "c.yaml"), inJSON(t, config))
	countersign, err := build("countersign", "../../../plugin-host/cmd/countersign")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	log = &logged{}
	cmd := exec.Command(countersign, "agent", "--dev", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "COUNTERSIGN_PROVIDER_PATH=" + filepath.Dir(binary)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent ended with %v:\n%s", err, log.take())
		}
	})
	return countersign, log
}

func TestAnAgentRotatesThroughAnOutageAndIntoANewCA(t *testing.T) {
	t.Parallel()
	server := start(t)
	dir, err := os.MkdirTemp("", "cs") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "token"), []byte(theToken.Reveal()+"\n"))
	countersign, log := agent(t, dir, server.socket(t))
	watch := func(count string) string {
		cmd := exec.CommandContext(within(t, time.Minute), countersign, "secrets", "watch", "--socket", filepath.Join(dir, "s"), "--for", "30s", "--count", count, "default")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s\nagent: %s", err, out, log.take())
		}
		return string(out)
	}
	if out := watch("1"); !strings.Contains(out, webID) {
		t.Errorf("watched %s", out)
	}
	server.next(failing(status.Error(codes.Unavailable, "down")), failing(status.Error(codes.Unavailable, "down")))
	watch("3") // what is held, and two rotations
	server.pool.Rotate()
	watch("3")
	made, calls, orders := server.certificates(), server.calls(), map[string]string{}
	for _, call := range calls {
		id, csr := call.order.GetRequestId(), call.order.GetCertificate().GetPemCsr()
		if before, again := orders[id]; again && before != csr {
			t.Errorf("the retry %s has another CSR", id)
		}
		orders[id] = csr
	}
	if made > len(orders) || len(calls) < len(orders)+2 {
		t.Errorf("%d certificates were made for %d requests in %d calls", made, len(orders), len(calls))
	}
	if text := log.take(); strings.Count(text, "a root was added") != 2 || strings.Contains(text, theToken.Reveal()[:20]) || strings.Contains(text, "PRIVATE KEY") {
		t.Errorf("the log is\n%s", text)
	}
}

// The workload's token goes to the token service alone, and what that gives to the
// service that signs; the host keeps it, so that rotations cost no exchange.
func TestAnAgentHasItsTokenExchangedByTheProvider(t *testing.T) {
	t.Parallel()
	server, tokens := start(t), startTokens(t)
	dir, err := os.MkdirTemp("", "cs") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write(t, filepath.Join(dir, "token"), []byte(theToken.Reveal()+"\n"))
	settings := server.socket(t)
	settings.Credentials, settings.Exchange = "", tokens.settings().Exchange
	settings.RootFile = filepath.Join(dir, "roots.pem")
	write(t, settings.RootFile, slices.Concat(read(t, server.root), read(t, tokens.root)))
	countersign, log := agent(t, dir, settings)
	cmd := exec.CommandContext(within(t, time.Minute), countersign, "secrets", "watch", "--socket", filepath.Join(dir, "s"), "--for", "30s", "--count", "3", "default")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), webID) {
		t.Fatalf("%v: %s\nagent: %s", err, out, log.take())
	}
	for _, call := range server.calls() {
		if got := call.metadata["authorization"]; got[0] != "Bearer "+federated.Reveal() {
			t.Error("the service was asked with another token")
		}
	}
	if n := tokens.calls(); n != 1 || server.certificates() < 3 {
		t.Errorf("%d exchanges for %d certificates", n, server.certificates())
	}
	if text := log.take(); strings.Contains(text, theToken.Reveal()[:20]) || strings.Contains(text, federated.Reveal()[:20]) {
		t.Error("a token is in the log")
	}
}
