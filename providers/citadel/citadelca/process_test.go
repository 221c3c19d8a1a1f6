package citadelca

import (
	"context"
	"errors"
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

	"github.com/countersign-dev/countersign/internal/testprogram"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// provider is the program, built once.
var provider = sync.OnceValues(func() (string, error) { return build("countersign-provider-citadel", "..") })

// build builds a program into the folder that goes with the tests.
func build(name, source string) (string, error) {
	binary := filepath.Join(scratch, "bin", name)
	return binary, testprogram.Build(binary, source, ".")
}

// stockHost is the host's end as any go-plugin host has it.
type stockHost struct{ plugin.NetRPCUnsupportedPlugin }

func (stockHost) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host is no provider")
}

func (stockHost) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return wire.NewRemote(conn, wire.RemoteOptions{}), nil
}

// run starts the provider by a stock go-plugin host, which logs to log.
func run(t *testing.T, log *logged) *wire.Remote {
	t.Helper()
	binary, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	host := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: stockHost{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		Cmd:              exec.Command(binary),
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

func TestAsAProcessItIsConfiguredSignsAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	server, log := start(t), &logged{}
	ctx, remote := within(t, time.Minute), run(t, log)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "citadel" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority}) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{"address", "root_file", "server_name", "cluster_id", "cert_signer", "headers", "client_cert_file", "client_key_file", "allow_token_over_plaintext"} {
		if !strings.Contains(metadata.SettingsSchema, `"`+setting+`"`) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	for says, settings := range map[string]map[string]any{
		`address is "istiod"`:                {"address": "istiod"},
		"did you mean root_file?":            {"rootfile": "x"},
		"headers":                            {"headers": map[string]any{"x": 1}},
		`headers has "authorization"`:        {"headers": map[string]any{"authorization": "x"}},
		"set both or neither":                {"client_key_file": "x"},
		"the setting cluster_id is a number": {"cluster_id": 1},
	} {
		mustBe(t, remote.Configure(ctx, settings), ca.ErrInvalid, says)
	}
	settings := server.settings(t)
	if err := remote.Configure(ctx, map[string]any{"address": settings.Address, "root_file": settings.RootFile, "cluster_id": "c", "headers": map[string]any{"X": "y"}}); err != nil {
		t.Fatal(err)
	}
	req, check := ask(t, theToken)
	reply, err := remote.CSRSign(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	mustPass(t, reply, check)
	call := server.last(t)
	if call.metadata["authorization"][0] != "Bearer "+theToken.Reveal() || call.metadata["clusterid"][0] != "c" || call.metadata["x"][0] != "y" {
		t.Errorf("the metadata are %v", call.metadata)
	}
	server.next(failing(7, "not for "+theToken.Reveal()))
	_, err = remote.CSRSign(ctx, req)
	mustBe(t, err, ca.ErrDenied, settings.Address+": not for (token)")
	if text := log.take(); strings.Contains(text, theToken.Reveal()) || strings.Contains(text, "PRIVATE KEY") {
		t.Error("the token or a key is in the log")
	}
}

// agent runs `countersign agent` in a folder, as a sidecar is started: by Istio's
// variables alone. It returns the program and the agent's log.
func agent(t *testing.T, dir string, environ ...string) (countersign string, log *logged) {
	t.Helper()
	countersign, err := build("countersign", "../../../plugin-host/cmd/countersign")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	log = &logged{}
	cmd := exec.Command(countersign, "agent", "--dev")
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, log, log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "COUNTERSIGN_PROVIDER_PATH=" + filepath.Dir(binary)}, environ...)
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

func TestAnAgentThatHasIstiosVariablesAloneGetsItsCertificateFromIstiod(t *testing.T) {
	t.Parallel()
	server := start(t)
	dir, err := os.MkdirTemp("", "cs") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tokens := filepath.Join(dir, "var/run/secrets/tokens")
	if err := os.MkdirAll(tokens, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tokens, "istio-token"), []byte("first.token.of-the-test\n"))
	countersign, log := agent(t, dir, "CA_ADDR="+server.address, "CA_ROOT_CA="+server.settings(t).RootFile, "TRUST_DOMAIN=example.org",
		"POD_NAMESPACE=shop", "SERVICE_ACCOUNT=web", "ISTIO_META_CLUSTER_ID=Kubernetes", "SECRET_TTL=2s", "COUNTERSIGN_SOCKET=./s")
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
	write(t, filepath.Join(tokens, "istio-token"), []byte("second.token.of-the-test\n"))
	watch("3") // what is held, and two rotations: one may have begun with the first token
	calls := server.calls()
	first, last := calls[0].metadata, calls[len(calls)-1].metadata
	if first["authorization"][0] != "Bearer first.token.of-the-test" || last["authorization"][0] != "Bearer second.token.of-the-test" || first["clusterid"][0] != "Kubernetes" {
		t.Errorf("the first call came with %v, the last with %v", first, last)
	}
	if text := log.take(); strings.Contains(text, "token.of-the-test") || strings.Contains(text, "PRIVATE KEY") || !strings.Contains(text, "citadel") {
		t.Errorf("the log is\n%s", text)
	}
}
