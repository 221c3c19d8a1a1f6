//go:build unix && !linux

package unixsocket

import (
	"io/fs"
	"net"
	"sync"
	"syscall"
)

// umask belongs to the whole process. While a socket is made it is stricter; a
// file that somebody else makes in that moment has fewer rights, never more.
var umask sync.Mutex

// listenWithMode makes the file with its mode from the first moment on.
func listenWithMode(path string, mode fs.FileMode) (*net.UnixListener, error) {
	umask.Lock()
	defer umask.Unlock()
	defer syscall.Umask(syscall.Umask(0o777 &^ int(mode.Perm())))
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
