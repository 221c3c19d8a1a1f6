package provider

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// serveStock serves any go-plugin host and returns when the host has shut it down.
func (d *Definition) serveStock(log *slog.Logger) {
	stderr := os.Stderr
	stdout, err := stdoutAside()
	if err != nil {
		log.Error("cannot reserve standard output for the handshake", "error", err)
		os.Exit(1)
	}
	os.Stdout = stdout // go-plugin prints the handshake line there
	instance := d.newInstance()
	sets := map[int]plugin.PluginSet{}
	for _, protocol := range d.protocols {
		sets[protocol.Version] = plugin.PluginSet{wire.PluginName: &stockPlugin{provider: instance, protocol: protocol}}
	}
	defer closeWithin(instance, replyGrace)
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: 1, MagicCookieKey: wire.MagicCookieKey, MagicCookieValue: wire.MagicCookieValue,
		},
		VersionedPlugins: sets,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			opts = append(opts, wire.ServerOptions(log)...)
			server := grpc.NewServer(append(opts, grpc.ChainUnaryInterceptor(printTo(stderr)))...)
			go drainOnTerm(server, instance)
			return server
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: stderr, JSONFormat: true}),
	})
}

// printTo redirects everything printed to stderr before the author's code runs. By then,
// go-plugin has set os.Stdout and os.Stderr to pipes that only a stream of the host reads. If
// the host never opens it, a provider that prints 64 KiB would block for ever.
func printTo(stderr *os.File) grpc.UnaryServerInterceptor {
	var once sync.Once
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		once.Do(func() { os.Stdout, os.Stderr = stderr, stderr })
		return next(ctx, req)
	}
}

// stockPlugin is a provider in one version of the protocol as a go-plugin plugin.
type stockPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	provider wire.Provider
	protocol wire.Protocol
}

// GRPCServer registers the provider on go-plugin's server.
func (p *stockPlugin) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	wire.Register(server, p.protocol, p.provider)
	return nil
}

// GRPCClient is for hosts only.
func (p *stockPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a provider is not a host")
}
