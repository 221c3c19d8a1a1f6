package provider

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// serveStock serves any go-plugin host.
func (d *Definition) serveStock(log *slog.Logger) {
	sets := map[int]plugin.PluginSet{}
	for _, protocol := range d.protocols {
		sets[protocol.Version] = plugin.PluginSet{wire.PluginName: &stockPlugin{definition: d, protocol: protocol}}
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: 1, MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue,
		},
		VersionedPlugins: sets,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, wire.ServerOptions(log)...)...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
}

// stockPlugin is a definition in one version of the protocol, as go-plugin has it.
type stockPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	definition *Definition
	protocol   wire.Protocol
}

// GRPCServer puts a new instance on go-plugin's server.
func (p *stockPlugin) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	wire.Register(server, p.protocol, p.definition.Provider())
	return nil
}

// GRPCClient is the host's end, which this side is not.
func (p *stockPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a provider is no host")
}
