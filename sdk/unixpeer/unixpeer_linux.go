package unixpeer

import (
	"net"

	"golang.org/x/sys/unix"
)

// MissingProtection is, for the log, what this system lacks. It is empty on Linux,
// where the kernel identifies the peer.
const MissingProtection = ""

// Of returns the process at the other end of a connection, by the kernel's record: the
// client, or, on a connection we opened, the listener.
func Of(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}
