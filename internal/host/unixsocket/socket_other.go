//go:build !unix

package unixsocket

import (
	"io/fs"
	"net"
	"os"
)

// lockFile creates the file; an open file cannot be removed on this system.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// Locked is unknown: this system has no lock.
func Locked(string) (bool, error) { return false, nil }

// listenWithMode leaves the permissions to the folder.
func listenWithMode(path string, _ fs.FileMode) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

func ours(os.FileInfo) bool { return true }

// refused treats every failure to connect as a refusal.
func refused(error) bool { return true }
