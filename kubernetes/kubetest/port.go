//go:build linux

package kubetest

import (
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// reservePort returns a port of 127.0.0.1 that stays reserved for this test, so that a
// restarted server can reuse it: a bound socket that does not listen holds it, and a
// server that binds it with SO_REUSEPORT gets all its connections.
func reservePort(tb testing.TB) int {
	tb.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(tb, err)
	tb.Cleanup(func() { must(tb, unix.Close(socket)) })
	must(tb, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	must(tb, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(socket)
	must(tb, err)
	return name.(*unix.SockaddrInet4).Port
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
