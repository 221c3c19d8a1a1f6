package unixsocket_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// A program that listens must not find the files that it makes meanwhile, or those of
// a child, with other rights.
func TestListenKeepsProcessUmask(t *testing.T) {
	dir := proctest.Folder(t)
	defer syscall.Umask(syscall.Umask(0o022))
	var done sync.WaitGroup
	done.Go(func() {
		for range 200 {
			s, err := unixsocket.Listen(filepath.Join(dir, "socket"), 0o660, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			info, err := os.Lstat(filepath.Join(dir, "socket"))
			if err != nil || info.Mode().Perm() != 0o660 {
				t.Errorf("the socket has %v, %v", info, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2000 {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
			t.Fatalf("a file has %v, %v", info.Mode(), err)
		}
		_ = os.Remove(path)
	}
	done.Wait()
}
