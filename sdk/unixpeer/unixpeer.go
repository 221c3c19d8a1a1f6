// Package unixpeer knows who is at the other end of a unix socket, and says who of them
// is answered: a gRPC server has [Credentials], and asks [Policy.Admit] who calls.
package unixpeer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Peer is the process at the other end of a unix socket, as the kernel knew it when
// it connected.
type Peer struct {
	UID, GID uint32
	PID      int32 // 0 where the system does not tell; may since be another process
}

// Policy says which peers are answered. The zero value is the agent's own user and
// root.
type Policy struct {
	// UIDs and GIDs are admitted beside the agent's own user and root: a peer of one
	// of these users, or whose primary group is one of these. Default: none.
	UIDs, GIDs []uint32
	// Refuse may turn away a peer that is admitted otherwise, by an error. It must
	// not block. Default: nobody.
	Refuse func(Peer) error
}

// Check returns an error where the peer is not to be answered.
func (p Policy) Check(peer Peer) error {
	own := peer.UID == 0 || int(peer.UID) == os.Geteuid()
	if !own && !slices.Contains(p.UIDs, peer.UID) && !slices.Contains(p.GIDs, peer.GID) {
		return fmt.Errorf("uid %d, gid %d may not ask here", peer.UID, peer.GID)
	}
	if p.Refuse != nil {
		return p.Refuse(peer)
	}
	return nil
}

// Admit returns the caller of an RPC on a server with our [Credentials], or the
// status to end it with.
func (p Policy) Admit(ctx context.Context) (secret.Caller, error) {
	remote, ok := peer.FromContext(ctx)
	if !ok {
		return secret.Caller{}, status.Error(codes.PermissionDenied, "the peer is not known")
	}
	info, ok := remote.AuthInfo.(peerInfo)
	if !ok {
		return secret.Caller{}, status.Error(codes.PermissionDenied, "the peer is not known")
	}
	if err := p.Check(info.Peer); err != nil {
		return secret.Caller{}, status.Error(codes.PermissionDenied, err.Error())
	}
	return secret.Caller{ID: fmt.Sprintf("uid:%d", info.UID), UID: info.UID, GID: info.GID, PID: info.PID}, nil
}

// peerInfo carries the peer to the handlers.
type peerInfo struct {
	credentials.CommonAuthInfo
	Peer
}

// AuthType names the way the peer is known.
func (peerInfo) AuthType() string { return "unix-peer" }

// Credentials are those of a gRPC server on a unix socket: the kernel is asked who has
// connected, and nothing is encrypted, as nothing leaves the machine.
func Credentials() credentials.TransportCredentials { return peerCredentials{} }

// peerCredentials asks the kernel who has connected. It hands on the connection
// as it is: a wrapped one would lose grpc's pooled buffers.
type peerCredentials struct{}

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection of type %T is no unix socket's", conn)
	}
	who, err := Of(unixConn)
	if err != nil {
		return nil, nil, fmt.Errorf("ask who has connected: %w", err)
	}
	return conn, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, who}, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are a server's credentials")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peer"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }
