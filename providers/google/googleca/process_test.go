package googleca

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

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

// run builds the provider and starts it by a stock go-plugin host, which logs to log.
func run(t *testing.T, log *logged) *wire.Remote {
	t.Helper()
	binary := filepath.Join(scratch, "bin", "countersign-provider-google")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
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

func TestAsAProcessItIsConfiguredSignsTellsItsRootsAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	server, log := start(t), &logged{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.serve(t, listener)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	remote := run(t, log)
	ctx := within(t, time.Minute)
	metadata, err := remote.Metadata(ctx)
	if err != nil || metadata.Name != "google" || !slices.Equal(metadata.Abilities, []wire.Ability{wire.CertificateAuthority, wire.RootSource, wire.RootWatcher}) {
		t.Errorf("%v, %v", metadata, err)
	}
	for _, setting := range []string{"protocol", "ca_pool", "issuing_ca", "certificate_template", "subject_mode", "labels", "roots_interval", "endpoint", "universe_domain", "root_file", "quota_project", "credentials", "credentials_file", "location"} {
		if !strings.Contains(metadata.SettingsSchema, `"`+setting+`"`) || strings.Contains(metadata.SettingsSchema, "Log") {
			t.Errorf("the schema lacks %s or has the log: %s", setting, metadata.SettingsSchema)
		}
	}
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": "mesh"}), ca.ErrInvalid, `ca_pool is "mesh": write projects/P/locations/L/caPools/N`)
	mustBe(t, remote.Configure(ctx, map[string]any{"capool": thePool}), ca.ErrInvalid, "did you mean ca_pool?")
	mustBe(t, remote.Configure(ctx, map[string]any{"protocol": "meshca"}), ca.ErrInvalid, "endpoint is not set: the protocol meshca needs")
	mustBe(t, remote.Configure(ctx, map[string]any{"ca_pool": thePool}), ca.ErrUnavailable, "credentials adc", "none.json")
	if err := remote.Configure(ctx, map[string]any{"ca_pool": thePool, "endpoint": "localhost:" + port, "root_file": server.root, "credentials": "token"}); err != nil {
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
