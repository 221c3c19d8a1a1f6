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

// listenWithMode makes the file with no more rights than mode from the first moment
// on: Linux takes them from the descriptor. The umask would do it, too, and belongs to
// the whole process: a child that an embedder starts in that moment would inherit it.
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

// widen gives the file back what the umask took. Its path is resolved once, and no
// link is followed.
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
