package unixsocket_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listening returns a socket in a folder of its own that accepts and closes connections.
func listening(t *testing.T) (*unixsocket.Socket, string) {
	t.Helper()
	dir := proctest.Folder(t)
	path := filepath.Join(dir, "folder", "s")
	s, err := unixsocket.Listen(path, 0o660, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		<-ended
	})
	return s, path
}

// eventually waits for the event.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	polling.Until(t, 20*time.Second, what, happened)
}

func answers(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func TestSocketThatVanishesIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(path string) error{
		"the file is removed":       os.Remove,
		"the lock, too":             func(path string) error { return errors.Join(os.Remove(path), os.Remove(path+".lock")) },
		"the folder is removed":     func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"the folder is moved":       func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"-old") },
		"the file is moved":         func(path string) error { return os.Rename(path, path+"-old") },
		"a dead socket replaces it": replaceByDead,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := listening(t)
			if err := vanish(path); err != nil {
				t.Fatal(err)
			}
			eventually(t, "listening again", func() bool { return answers(path) })
			info, err := os.Lstat(path)
			if err != nil || info.Mode().Perm() != 0o660 {
				t.Errorf("%v, %v", info, err)
			}
			if locked, err := unixsocket.Locked(path); err != nil || !locked {
				t.Errorf("locked %v, %v", locked, err)
			}
			eventually(t, "no error", func() bool { return s.Err() == nil })
		})
	}
}

func replaceByDead(path string) error {
	other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path + "-new", Net: "unix"})
	if err != nil {
		return err
	}
	other.SetUnlinkOnClose(false)
	return errors.Join(other.Close(), os.Rename(path+"-new", path))
}

// What another program has put there is its own.
func TestSocketOfAnotherIsReportedAndLeftAlone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s, path := listening(t)
	if err := errors.Join(os.WriteFile(path+"-new", []byte("x"), 0o600), os.Rename(path+"-new", path)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an error", func() bool { return s.Err() != nil })
	if err := s.Err(); !strings.Contains(err.Error(), "exists and is not a socket") {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "listening again", func() bool { return answers(path) && s.Err() == nil })
}

// An agent of another kind removes what it finds at its path. Our listener holds its inode, so that
// the other's socket has another one.
func TestSocketTakenByAnotherIsReported(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s, path := listening(t)
	other, err := net.Listen("unix", path+"-new")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"-new", path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an error", func() bool { return s.Err() != nil })
	if err := s.Err(); !strings.Contains(err.Error(), "served by another program") {
		t.Error(err)
	}
	_ = other.Close()
	eventually(t, "listening again", func() bool { return answers(path) && s.Err() == nil })
}
