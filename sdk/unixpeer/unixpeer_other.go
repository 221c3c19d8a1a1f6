//go:build !linux && !darwin

package unixpeer

import (
	"net"
	"os"
)

// MissingProtection is what is missing on this system, for the log.
const MissingProtection = "the system does not tell who has connected: whoever may open the socket's file is answered"

// Of takes everybody for the agent's own user; the socket's file has to keep
// others out.
func Of(*net.UnixConn) (Peer, error) {
	return Peer{UID: uint32(os.Geteuid())}, nil
}
