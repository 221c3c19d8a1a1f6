// Package wire is both ends of the protocol between a Countersign host and a
// provider process, over any gRPC connection, and the one table of its errors.
//
// A host calls [NewRemote] with its connection, a provider process calls
// [Register] with its server. Both ends are a [Provider], so that nobody can tell
// from a value on which side of the boundary the authority is. How the process
// is found, started and authenticated: proto/provider/PROTOCOL.md.
package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// What host and provider agree on before the first call; see PROTOCOL.md.
const (
	// MagicCookieKey and MagicCookieValue are the environment variable that tells
	// a binary that a host has started it. It is no secret.
	MagicCookieKey   = "COUNTERSIGN_PROVIDER"
	MagicCookieValue = "b3f1c0de-6a52-4d0e-9c55-c0de5167ed01"
	// PluginName is the name in go-plugin's set of plugins.
	PluginName = "provider"
	// HealthService is the service name that go-plugin's ping asks for.
	HealthService = "plugin"

	// EnvVersions lists the protocol versions the host speaks, comma separated.
	EnvVersions = "PLUGIN_PROTOCOL_VERSIONS"
	// EnvSocketDir is the only folder where a provider may make its socket.
	EnvSocketDir = "PLUGIN_UNIX_SOCKET_DIR"
	// EnvClientCert is the host's certificate (PEM) for AutoMTLS.
	EnvClientCert = "PLUGIN_CLIENT_CERT"

	// EnvBinary is the file that was verified, without symbolic links: what runs may
	// be a copy of it in memory, which does not know where its companions are.
	EnvBinary = "COUNTERSIGN_BINARY"

	// EnvLifelineFD and EnvChannelFD tell of the descriptors that the host passes.
	EnvLifelineFD = "COUNTERSIGN_LIFELINE_FD"
	EnvChannelFD  = "COUNTERSIGN_CHANNEL_FD"
	// LifelineFD and ChannelFD are their numbers, for os/exec: ExtraFiles[0] and [1].
	LifelineFD = 3
	ChannelFD  = 4
	// ChannelAddress stands in the handshake line for the inherited channel.
	ChannelAddress = "fd:4"

	// MaxHandshake bounds the handshake line, its newline included.
	MaxHandshake = 8 << 10
	// MaxMessage bounds one gRPC message, in both directions.
	MaxMessage = 4 << 20
)

// Provider is a provider as a host sees it, and as the process that serves it
// does. All methods are always there; an ability that is missing answers
// [ca.ErrUnimplemented]. It is safe for concurrent use.
type Provider interface {
	ca.Client
	ca.RootSource
	ca.RootWatcher
	ca.TokenExchanger
	// Metadata says what the provider is, without settings and without network.
	Metadata(ctx context.Context) (Metadata, error)
	// Validate checks settings without taking them over. Their faults are the
	// answer; an error says that they could not be looked at.
	Validate(ctx context.Context, settings map[string]any) ([]Diagnostic, error)
	// ValidateOnline is Validate and, where that finds no error, asks the authority,
	// too: is it reached, does it take the credentials? Nothing is signed. A provider
	// that has no such check answers [ca.ErrUnimplemented] beside what it found.
	ValidateOnline(ctx context.Context, settings map[string]any) ([]Diagnostic, error)
	// Configure takes settings over, whole. After an error the earlier stand.
	Configure(ctx context.Context, settings map[string]any) error
	// Ready returns nil as soon as requests can be served.
	Ready(ctx context.Context) error
}

// Protocol is what differs from one version of the protocol to the next: how a
// certificate is asked for. The other services are those of version 1.
type Protocol struct {
	Version int
	// Register serves signer on r.
	Register func(r grpc.ServiceRegistrar, signer ca.Client)
	// Dial returns the other end.
	Dial func(conn grpc.ClientConnInterface) ca.Client
}
