// Package unixsocket opens listening unix sockets and handles their files with care: call
// [Listen]. The gRPC sockets and the status page use it. One goroutine for each socket looks
// after its file; the lock on the socket belongs to the process.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

// Socket is a listening unix socket that owns its file: if the file or its folder is removed or
// replaced, it listens again.
type Socket struct {
	path   string
	mode   fs.FileMode
	folder fs.FileMode
	log    *slog.Logger
	told   atomic.Int64 // last report of a failed Accept, in Unix seconds

	mu  sync.Mutex
	now bound
	err error // why no client can connect

	close sync.Once
	done  chan struct{}
	kept  sync.WaitGroup
}

// bound is what listens at the path.
type bound struct {
	*net.UnixListener
	file os.FileInfo // as it was made
	lock *os.File
}

// Listen creates the socket file with its mode, and its folder (0700) if that is missing.
// It replaces an existing file only while it holds the lock file beside it, and only if it
// is a socket of this user that refuses connections.
func Listen(named string, mode fs.FileMode, log *slog.Logger) (*Socket, error) {
	path, err := ParsePath(named)
	if err != nil {
		return nil, fmt.Errorf("invalid socket %.256q: %w", named, err)
	}
	folder, err := prepareFolder(filepath.Dir(path), 0o700)
	if err != nil {
		return nil, errno.Explain(err)
	}
	if folder&0o022 != 0 && folder&fs.ModeSticky == 0 {
		log.Warn("the socket's folder is writable by other users, who could replace the socket", "folder", filepath.Dir(path), "mode", folder.String())
	}
	s := &Socket{path: path, mode: mode, folder: folder.Perm(), log: log, done: make(chan struct{})}
	if s.now, err = s.bind(nil); err != nil {
		return nil, errno.Explain(err)
	}
	s.kept.Go(s.keep)
	return s, nil
}

// Addr implements [net.Listener].
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Accept implements [net.Listener]. It logs failures, such as too few descriptors, once a
// minute: gRPC retries silently.
func (s *Socket) Accept() (net.Conn, error) {
	for {
		listener := s.listener()
		conn, err := listener.Accept()
		switch {
		case err == nil:
			return conn, nil
		case s.listener() != listener:
			continue // it was replaced
		}
		now, last := time.Now().Unix(), s.told.Load()
		if !errors.Is(err, net.ErrClosed) && now-last >= 60 && s.told.CompareAndSwap(last, now) {
			s.log.Error("cannot accept connections on the socket, retrying", "socket", s.path, "error", errno.Explain(err))
		}
		return nil, err
	}
}

func (s *Socket) listener() *net.UnixListener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.UnixListener
}

// prepareFolder returns the mode of the folder, which it creates if it is missing.
func prepareFolder(dir string, mode fs.FileMode) (fs.FileMode, error) {
	if err := os.MkdirAll(dir, mode); err != nil {
		return 0, fmt.Errorf("create the socket's folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return 0, fmt.Errorf("check the socket's folder: %w", err)
	}
	return info.Mode(), nil
}

// bind listens at the path under the lock: a held one, if its file is still there.
func (s *Socket) bind(held *os.File) (bound, error) {
	lock := held
	if lock == nil || !isAt(lock, s.path+lockSuffix) {
		var err error
		if lock, err = lockFile(s.path + lockSuffix); err != nil {
			return bound{}, err
		}
	}
	b, err := bind(s.path, s.mode)
	if err != nil && lock != held {
		return bound{}, errors.Join(err, lock.Close())
	}
	b.lock = lock
	return b, err
}

func bind(path string, mode fs.FileMode) (bound, error) {
	if err := removeStale(path); err != nil {
		return bound{}, err
	}
	listener, err := listenWithMode(path, mode)
	if err != nil {
		return bound{}, err
	}
	listener.SetUnlinkOnClose(false) // the path could be another socket by then
	info, err := os.Lstat(path)
	if err != nil {
		return bound{}, errors.Join(err, listener.Close())
	}
	return bound{UnixListener: listener, file: info}, nil
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
// removing it could remove one that another process has just locked. It may be called twice, as
// gRPC closes its listener, too.
func (s *Socket) Close() (err error) {
	s.close.Do(func() {
		close(s.done)
		s.kept.Wait()
		err = s.now.Close()
		if now, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(now, s.now.file) {
			err = errors.Join(err, os.Remove(s.path))
		}
		err = errors.Join(err, s.now.lock.Close())
	})
	return err
}
