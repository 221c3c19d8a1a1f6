//go:build !unix

package unixsocket

import (
	"io/fs"
	"net"
	"os"
)

// lockFile makes the file; a file that is open cannot be removed or made anew here.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// Locked cannot tell here: there is no lock.
func Locked(string) (bool, error) { return false, nil }

// listenWithMode leaves the rights to the folder's.
func listenWithMode(path string, _ fs.FileMode) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

func ours(os.FileInfo) bool { return true }

// refused takes every failure to connect for a refusal.
func refused(error) bool { return true }
