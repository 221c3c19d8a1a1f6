package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/internal/host/errno"
)

const (
	lockSuffix = ".lock"
	// checkEvery is how often the file is looked for. Events would take an inotify instance for
	// each socket; all processes of a user share 128.
	checkEvery = time.Second
	// reportEvery is how often a fault that lasts is logged.
	reportEvery = time.Minute
)

// Err returns why no client can connect, or nil.
func (s *Socket) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// keep listens again whenever the file is gone, until Close.
func (s *Socket) keep() {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	var reported time.Time
	for {
		select {
		case <-s.done:
			return
		case <-ticker.C:
		}
		err := errno.Explain(s.check())
		if err == nil {
			reported = time.Time{}
		} else if time.Since(reported) >= reportEvery {
			s.log.Error("no client can connect to the socket, retrying", "socket", s.path, "error", err)
			reported = time.Now()
		}
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
}

func (s *Socket) check() error {
	info, err := os.Lstat(s.path)
	switch {
	case err == nil && os.SameFile(info, s.now.file):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("check the socket: %w", err)
	}
	if _, err := prepareFolder(filepath.Dir(s.path), s.folder); err != nil {
		return err
	}
	fresh, err := s.bind(s.now.lock)
	if err != nil {
		return err
	}
	s.log.Warn("the socket's file was removed or replaced, listening again", "socket", s.path)
	s.replace(fresh)
	return nil
}

// replace switches [Socket.Accept] to another listener.
func (s *Socket) replace(fresh bound) {
	s.mu.Lock()
	old := s.now
	s.now = fresh
	s.mu.Unlock()
	_ = old.Close() // its path leads elsewhere
	if old.lock != fresh.lock {
		_ = old.lock.Close() // of a file that is gone
	}
}

// isAt reports whether an open file is the one at a path.
func isAt(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(held, there)
}
