// Package unixpeer identifies the process at the other end of a unix socket and decides whether to
// serve it: a gRPC server uses [Credentials] and calls [Policy.Admit], and [Hold] where the process
// itself counts.
package unixpeer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/host/process"
)

// Peer is the process at the other end of a unix socket, as the kernel recorded it at
// connect time.
type Peer struct {
	UID, GID uint32
	PID      int32 // 0 if the system does not report it; may since have been reused
}

// Policy decides which peers are served. The zero value admits the agent's own user and
// root.
type Policy struct {
	// UIDs and GIDs are admitted besides the agent's own user and root: peers with one
	// of these users or primary groups. Default: none.
	UIDs, GIDs []uint32
	// Refuse may reject an otherwise admitted peer by returning an error. It must not
	// block. Default: none.
	Refuse func(Peer) error
}

// Check returns an error if the peer must not be served.
func (p Policy) Check(peer Peer) error {
	own := peer.UID == 0 || int(peer.UID) == os.Geteuid()
	if !own && !slices.Contains(p.UIDs, peer.UID) && !slices.Contains(p.GIDs, peer.GID) {
		return fmt.Errorf("uid %d, gid %d is not allowed to connect", peer.UID, peer.GID)
	}
	if p.Refuse != nil {
		return p.Refuse(peer)
	}
	return nil
}

// Admit returns the peer of an RPC on a server with our [Credentials], and the status to end the RPC
// with if the peer must not be served. The peer of an error is zero if it is not known.
func (p Policy) Admit(ctx context.Context) (Peer, error) {
	remote, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, status.Error(codes.PermissionDenied, "the peer is not known")
	}
	info, ok := remote.AuthInfo.(peerInfo)
	if !ok {
		return Peer{}, status.Error(codes.PermissionDenied, "the peer is not known")
	}
	if err := p.Check(info.Peer); err != nil {
		return info.Peer, status.Error(codes.PermissionDenied, err.Error())
	}
	return info.Peer, nil
}

// peerInfo carries the peer to the handlers.
type peerInfo struct {
	credentials.CommonAuthInfo
	Peer
	conn     *net.UnixConn
	accepted time.Duration // since the machine's start
}

// AuthType returns how the peer was identified.
func (peerInfo) AuthType() string { return "unix-peer" }

// Credentials returns credentials for a gRPC server on a unix socket: the kernel
// identifies the peer, and nothing is encrypted because nothing leaves the machine.
func Credentials() credentials.TransportCredentials { return peerCredentials{} }

// peerCredentials asks the kernel for the peer. It returns the connection unwrapped: a
// wrapped one would lose grpc's pooled buffers.
type peerCredentials struct{}

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("unsupported connection type %T: not a unix socket", conn)
	}
	who, err := Of(unixConn)
	if err != nil {
		return nil, nil, fmt.Errorf("ask who has connected: %w", err)
	}
	return conn, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, who, unixConn, process.SinceBoot()}, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are a server's credentials")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }
