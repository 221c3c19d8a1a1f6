package attach

import (
	"context"
	"fmt"
	"net"
	"os"
)

// SameUser returns a listener that accepts connections of this user only.
func SameUser(l net.Listener) net.Listener { return sameUser{l} }

type sameUser struct{ net.Listener }

// Accept implements [net.Listener].
func (l sameUser) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || checkPeer(conn) == nil {
			return conn, err
		}
		_ = conn.Close()
	}
}

// Dial connects to a socket and checks that a process of this user serves it.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// checkPeer fails if the other end of a unix socket is not a process of this user.
func checkPeer(conn net.Conn) error {
	uid, err := peerUID(conn.(*net.UnixConn)) //nolint:errcheck // both ways to get one are unix sockets
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("the process at the socket runs as uid %d, not as the current user (uid %d)", uid, os.Geteuid())
	}
	return err
}
