package unixpeer

import (
	"net"

	"golang.org/x/sys/unix"
)

// MissingProtection is what is missing on this system, for the log; empty here, as
// the kernel tells who has connected.
const MissingProtection = ""

// Of returns who is at the other end of a connection, as the kernel knows it: whoever
// connected, or on a connection of ours whoever listens.
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
