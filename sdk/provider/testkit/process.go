package testkit

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// stockHost is the host side of any go-plugin host.
type stockHost struct{ plugin.NetRPCUnsupportedPlugin }

func (stockHost) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host serves no provider")
}

func (stockHost) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return wire.NewRemote(conn, wire.RemoteOptions{}), nil
}

// Start starts a provider's binary under a stock go-plugin host and returns a client of it,
// not yet configured. The provider's log records go to log. The process ends with the test.
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
