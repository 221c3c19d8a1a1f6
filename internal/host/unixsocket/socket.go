// Package unixsocket opens listening unix sockets and handles their files with care: call
// [Listen]. The gRPC sockets and the status page use it. It has no goroutines; the lock on
// the socket belongs to the process.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Socket is a listening unix socket that owns its file.
type Socket struct {
	*net.UnixListener
	path string
	file os.FileInfo // as it was made
	lock *os.File
	log  *slog.Logger
	told atomic.Int64 // last report of a failed Accept, in Unix seconds
}

// Listen creates the socket file with its mode, and its folder (0700) if that is missing.
// It replaces an existing file only while it holds the lock file beside it, and only if it
// is a socket of this user that refuses connections.
func Listen(path string, mode fs.FileMode, log *slog.Logger) (*Socket, error) {
	path, err := ParsePath(path)
	if err != nil {
		return nil, fmt.Errorf("invalid socket: %w", err)
	}
	if err := prepareFolder(filepath.Dir(path), log); err != nil {
		return nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	s, err := bind(path, mode)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock, s.log = lock, log
	return s, nil
}

// Accept implements [net.Listener]. It logs failures, such as too few descriptors, once a
// minute: gRPC retries silently.
func (s *Socket) Accept() (net.Conn, error) {
	conn, err := s.UnixListener.Accept()
	if err == nil {
		return conn, nil
	}
	now, last := time.Now().Unix(), s.told.Load()
	if !errors.Is(err, net.ErrClosed) && now-last >= 60 && s.told.CompareAndSwap(last, now) {
		s.log.Error("cannot accept connections on the socket, retrying", "socket", s.path, "error", err)
	}
	return nil, err
}

// prepareFolder creates a missing folder, for this user only. It accepts one that others
// can write, as Kubernetes mounts them, with a warning.
func prepareFolder(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the socket's folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("check the socket's folder: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		log.Warn("the socket's folder is writable by other users, who could replace the socket", "folder", dir, "mode", info.Mode().String())
	}
	return nil
}

func bind(path string, mode fs.FileMode) (*Socket, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := listenWithMode(path, mode)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the path could be another socket by then
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &Socket{UnixListener: listener, path: path, file: info}, nil
}

// removeStale removes a socket that an earlier process left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket (%s); remove it or choose another path", path, info.Mode())
	case !ours(info):
		return fmt.Errorf("%s is another user's socket; remove it or choose another path", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).Dial("unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%s is served by another program; stop it or choose another path", path)
	case !refused(err):
		return fmt.Errorf("%s exists and may be in use: %w", path, err)
	}
	return os.Remove(path)
}

// Close stops listening and removes the file if it is still ours. The lock file stays:
// removing it could remove one that another process has just locked.
func (s *Socket) Close() error {
	err := s.UnixListener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil // gRPC has closed its listener already
	}
	if now, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(now, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return errors.Join(err, s.lock.Close())
}
