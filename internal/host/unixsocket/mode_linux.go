package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenWithMode creates the socket file with no more permissions than mode: Linux takes
// them from the descriptor. The umask would work, too, but is process-wide: a child that an
// embedder starts in that moment would inherit it.
func listenWithMode(path string, mode fs.FileMode) (*net.UnixListener, error) {
	listen := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), uint32(mode.Perm())) })
		return errors.Join(err, failed)
	}}
	listener, err := listen.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := widen(path, mode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener.(*net.UnixListener), nil
}

// widen restores permissions that the umask removed. It resolves the path once and follows
// no link.
func widen(path string, mode fs.FileMode) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the socket's file: %w", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is no longer a socket: another process replaced it", path)
	case info.Mode().Perm() == mode.Perm():
		return nil
	}
	return os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode.Perm())
}
