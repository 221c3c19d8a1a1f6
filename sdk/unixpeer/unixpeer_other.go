//go:build !linux && !darwin

package unixpeer

import (
	"net"
	"os"
)

// MissingProtection is, for the log, what this system lacks.
const MissingProtection = "the system does not identify the peer: every user who may open the socket's file is answered"

// Of reports every peer as the agent's own user; the socket's file mode must keep
// others out.
func Of(*net.UnixConn) (Peer, error) {
	return Peer{UID: uint32(os.Geteuid())}, nil
}
