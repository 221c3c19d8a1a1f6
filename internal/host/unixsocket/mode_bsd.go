//go:build unix && !linux

package unixsocket

import (
	"io/fs"
	"net"
	"sync"
	"syscall"
)

// umask guards the process's umask, which is stricter while a socket is made. A file that
// another goroutine creates in that moment gets fewer permissions, never more.
var umask sync.Mutex

// listenWithMode creates the socket file with its final mode.
func listenWithMode(path string, mode fs.FileMode) (*net.UnixListener, error) {
	umask.Lock()
	defer umask.Unlock()
	defer syscall.Umask(syscall.Umask(0o777 &^ int(mode.Perm())))
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
