package providerkit

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

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

// Start starts a provider by a stock go-plugin host, which logs to log, until the test
// ends.
func Start(tb testing.TB, provider *exec.Cmd, log io.Writer) *wire.Remote {
	tb.Helper()
	host := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugin.HandshakeConfig{MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue},
		VersionedPlugins: map[int]plugin.PluginSet{1: {wire.PluginName: stockHost{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		Cmd:              provider,
		Logger:           hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Trace}),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: tb.TempDir()},
	})
	tb.Cleanup(host.Kill)
	client, err := host.Client()
	if err != nil {
		tb.Fatal(err)
	}
	remote, err := client.Dispense(wire.PluginName)
	if err != nil {
		tb.Fatal(err)
	}
	return remote.(*wire.Remote)
}

// Agent runs `countersign agent --dev` in a folder until the test ends, with the provider
// that is this binary, further arguments and variables; it returns its log.
func Agent(tb testing.TB, countersign, provider, dir string, args, environ []string) *Log {
	tb.Helper()
	log := &Log{}
	cmd := exec.Command(countersign, append([]string{"agent", "--dev"}, args...)...) //nolint:gosec // built by the tests
	cmd.Dir, cmd.Stderr, cmd.Stdout = dir, log, log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "COUNTERSIGN_PROVIDER_PATH=" + filepath.Dir(provider)}, environ...)
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the agent ended with %v:\n%s", err, log.Take())
		}
	})
	return log
}
