//go:build linux || darwin

package attach

import (
	"net"

	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// peerUID asks the kernel who is at the other end.
func peerUID(conn *net.UnixConn) (int, error) {
	peer, err := unixpeer.Of(conn)
	return int(peer.UID), err
}
