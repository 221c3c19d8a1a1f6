// Package grpccreds makes gRPC's transport credentials over a [secret.Source]: call
// [Server] or [Client] with the options of package tlsconfig.
//
// A gRPC connection lives long, and streams on it survive each rotation: it keeps the
// certificates that it was made with. Let a server send its clients to new ones from
// time to time ([keepalive.ServerParameters.MaxConnectionAge]), below the time for
// which a root that was dropped may still be used.
package grpccreds

import (
	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// Server returns the credentials of a server; see [tlsconfig.Server]. Who has called
// is in the peer of an RPC's context, as [credentials.TLSInfo].
func Server(o tlsconfig.Options) (credentials.TransportCredentials, error) {
	cfg, err := tlsconfig.Server(o)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}

// Client returns the credentials of a client; see [tlsconfig.Client]. The name that
// is dialled is looked at where o.Peer does, as [tlsconfig.ServerName].
func Client(o tlsconfig.Options) (credentials.TransportCredentials, error) {
	cfg, err := tlsconfig.Client(o)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}
