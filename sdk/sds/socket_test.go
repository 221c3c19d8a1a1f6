package sds_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

func TestSocketAndFolderHaveTheirModes(t *testing.T) {
	for mode, want := range map[os.FileMode]os.FileMode{0: 0o600, 0o660: 0o660, 0o666: 0o666} {
		path := filepath.Join(proctest.Folder(t), "new", "socket")
		start(t, secrettest.New(), sds.Config{Path: path, Mode: mode})
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v: %v, %v", mode, info.Mode(), err)
		}
		if dir, _ := os.Stat(filepath.Dir(path)); dir.Mode().Perm() != 0o700 {
			t.Errorf("the folder has mode %v", dir.Mode())
		}
	}
}

func TestOnlyOwnDeadSocketIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		put  func(t *testing.T, path string)
		want string
	}{
		"nothing": {func(*testing.T, string) {}, ""},
		"dead socket": {func(t *testing.T, path string) {
			l := listenPlain(t, path)
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}, ""},
		"live socket":     {func(t *testing.T, path string) { listenPlain(t, path) }, "served by another program"},
		"file":            {func(t *testing.T, path string) { writeFile(t, path) }, "is not a socket"},
		"link to a file":  {func(t *testing.T, path string) { writeFile(t, path+".x"); _ = os.Symlink(path+".x", path) }, "is not a socket"},
		"another's":       {func(t *testing.T, path string) { deadSocketOf(t, path, 65534) }, "another user's socket"},
		"link as a lock":  {func(t *testing.T, path string) { writeFile(t, path+".x"); _ = os.Symlink(path+".x", path+".lock") }, "open the socket's lock"},
		"another server":  {func(t *testing.T, path string) { start(t, secrettest.New(), sds.Config{Path: path}) }, "another Countersign"},
		"too long a path": {nil, "at most 107"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(proctest.Folder(t), "socket")
			if c.put == nil {
				path += strings.Repeat("x", 100)
			} else {
				c.put(t, path)
			}
			server, err := sds.Listen(sds.Config{Path: path}, secrettest.New())
			if err == nil {
				t.Cleanup(func() { _ = server.Close(context.Background()) })
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestReplacedSocketIsLeftAloneOnClose(t *testing.T) {
	path := filepath.Join(proctest.Folder(t), "socket")
	server, err := sds.Listen(sds.Config{Path: path}, secrettest.New())
	must(t, err)
	must(t, os.Remove(path))
	writeFile(t, path)
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error("a foreign file is gone")
	}
}

func listenPlain(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("x"), 0o600))
}

func deadSocketOf(t *testing.T, path string, uid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make another user's socket")
	}
	l := listenPlain(t, path)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	must(t, os.Chown(path, uid, uid))
}
