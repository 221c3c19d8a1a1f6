package unixpeer

import (
	"net"

	"golang.org/x/sys/unix"
)

// MissingProtection is, for the log, what this system lacks.
const MissingProtection = "the peer's process is not known here, so a provider's is not refused"

// Of returns the process at the other end of a connection, by the kernel's record: the
// client, or, on a connection we opened, the listener.
func Of(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Xucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: cred.Uid, GID: cred.Groups[0]}, nil
}
