// Package wire (for authors of providers) implements both sides of the protocol between a
// Countersign host and a provider process, over any gRPC connection, with the one table of its
// errors.
//
// A host calls [NewRemote] with its connection; a provider process calls [Register] with its
// server. Both sides are a [Provider], so that an authority in the same process and one behind
// the protocol look the same. proto/provider/PROTOCOL.md defines how the process is found,
// started and authenticated. Authors of providers use package provider instead.
//
// The package has no state, and no goroutine but one for each watch of roots or keys, and those of
// the stream of requests, which end with its connection.
package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// What host and provider agree on before the first call; see PROTOCOL.md.
const (
	// MagicCookieKey and MagicCookieValue are the environment variable by which a binary
	// recognizes that a host started it. It is not a secret.
	MagicCookieKey   = "COUNTERSIGN_PROVIDER"
	MagicCookieValue = "b3f1c0de-6a52-4d0e-9c55-c0de5167ed01"
	// PluginName is the name in go-plugin's plugin set.
	PluginName = "provider"
	// HealthService is the service name in go-plugin's ping.
	HealthService = "plugin"

	// EnvVersions lists the protocol versions of the host, comma separated.
	EnvVersions = "PLUGIN_PROTOCOL_VERSIONS"
	// EnvSocketDir is the only folder where a provider may create its socket.
	EnvSocketDir = "PLUGIN_UNIX_SOCKET_DIR"
	// EnvClientCert is the host's certificate (PEM) for AutoMTLS.
	EnvClientCert = "PLUGIN_CLIENT_CERT"

	// EnvBinary is the verified file, with symbolic links resolved: the process may run from a
	// copy in memory, which does not know where its companion files are.
	EnvBinary = "COUNTERSIGN_BINARY"

	// EnvLifelineFD and EnvChannelFD announce the descriptors that the host passes.
	EnvLifelineFD = "COUNTERSIGN_LIFELINE_FD"
	EnvChannelFD  = "COUNTERSIGN_CHANNEL_FD"
	// LifelineFD and ChannelFD are their numbers, for os/exec: ExtraFiles[0] and [1].
	LifelineFD = 3
	ChannelFD  = 4
	// ChannelAddress is the address of the inherited channel in the handshake line.
	ChannelAddress = "fd:4"

	// MaxHandshake bounds the handshake line with its newline, in bytes.
	MaxHandshake = 8 << 10
	// MaxMessage bounds one gRPC message in either direction, in bytes.
	MaxMessage = 4 << 20
)

// Provider is a provider as its host and its process see it. It has all methods; those of a
// missing ability return [ca.ErrUnimplemented]. It is safe for concurrent use.
type Provider interface {
	ca.Client
	ca.RootSource
	ca.RootWatcher
	ca.TokenExchanger
	ca.NameCertifier
	ca.RenewalAdvisor
	ca.RevocationSource
	ca.JWTSigner
	ca.WITSigner
	// Metadata describes the provider. It needs no settings and no network.
	Metadata(ctx context.Context) (Metadata, error)
	// Validate checks settings without applying them. It returns what is wrong with them; an
	// error means that they could not be checked.
	Validate(ctx context.Context, settings map[string]any) ([]Diagnostic, error)
	// ValidateOnline is Validate and, if that finds no error, also checks that the authority
	// can be reached and accepts the credentials. It signs nothing. A provider without such a
	// check returns [ca.ErrUnimplemented] and what Validate found.
	ValidateOnline(ctx context.Context, settings map[string]any) ([]Diagnostic, error)
	// Configure replaces the settings as a whole. After an error the earlier ones stay.
	Configure(ctx context.Context, settings map[string]any) error
	// Ready returns nil when requests can be served.
	Ready(ctx context.Context) error
}

// Protocol is what differs between versions of the protocol: the signing service. All versions
// share the other services.
type Protocol struct {
	Version int
	// Register serves signer on r.
	Register func(r grpc.ServiceRegistrar, signer ca.Client)
	// Dial returns the client side.
	Dial func(conn grpc.ClientConnInterface) ca.Client

	streams bool // many calls go over one stream
}
