// Package grpccreds makes gRPC transport credentials from a [secret.Source]. Call [Server]
// or [Client] with the options of package tlsconfig. It has no state of its own.
//
// gRPC connections are long-lived, and streams survive rotations: a connection keeps the
// certificates of its handshake. Have servers recycle connections
// ([keepalive.ServerParameters.MaxConnectionAge]) sooner than a dropped root may no longer
// be used.
package grpccreds

import (
	"google.golang.org/grpc/credentials"

	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// Server returns server credentials; see [tlsconfig.Server]. The caller's identity is in
// the peer of an RPC's context, as [credentials.TLSInfo].
func Server(o tlsconfig.Options) (credentials.TransportCredentials, error) {
	cfg, err := tlsconfig.Server(o)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}

// Client returns client credentials; see [tlsconfig.Client]. The dialed name is checked
// only if o.Peer does so, as [tlsconfig.ServerName] does.
func Client(o tlsconfig.Options) (credentials.TransportCredentials, error) {
	cfg, err := tlsconfig.Client(o)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}
