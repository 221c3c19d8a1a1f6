//go:build !linux && !darwin

package attach

import (
	"errors"
	"net"
)

// peerUID fails: this system does not support it.
func peerUID(*net.UnixConn) (int, error) {
	return 0, errors.New("cannot identify the peer of a socket on this system, so providers cannot be attached")
}
