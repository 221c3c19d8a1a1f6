package proxy

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEachFolderChangeChangesDigest(t *testing.T) {
	dir := t.TempDir()
	folder, file := filepath.Join(dir, "folder"), filepath.Join(dir, "file")
	w := &watched{paths: []string{folder, file}, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	seen := map[string]string{}
	check := func(step string) {
		t.Helper()
		now := w.digest()
		if now != w.digest() {
			t.Errorf("%s: two looks at the same are not the same", step)
		}
		if before, known := seen[now]; known {
			t.Errorf("%s looks like %s", step, before)
		}
		seen[now] = step
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check("nothing")
	write(t, filepath.Join(folder, "a"), "1")
	check("a file")
	write(t, filepath.Join(folder, "a"), "2")
	check("other content of the same size")
	write(t, filepath.Join(folder, "b"), "2")
	check("a second file")
	do(os.Rename(filepath.Join(folder, "b"), filepath.Join(folder, "c")))
	check("another name")
	write(t, filepath.Join(folder, "deep", "b"), "2")
	check("a file below")
	write(t, file, "x")
	check("a file that is listed itself")
	write(t, filepath.Join(folder, "..1", "d"), "3")
	do(os.Symlink("..1", filepath.Join(folder, "..data")))
	do(os.Symlink("..data/d", filepath.Join(folder, "d")))
	check("a file behind links, as Kubernetes has it")
	write(t, filepath.Join(folder, "..2", "d"), "4")
	do(os.Symlink("..2", filepath.Join(folder, "..new")))
	do(os.Rename(filepath.Join(folder, "..new"), filepath.Join(folder, "..data")))
	check("the same after its swap")
	before := w.digest()
	do(os.RemoveAll(filepath.Join(folder, "..1")))
	if w.digest() != before {
		t.Error("what Kubernetes tidies up counts")
	}
	do(os.Truncate(file, maxFile+1))
	check("a large file")
	do(os.Truncate(file, maxFile+2))
	check("a larger file")
}

func TestOversizedFolderIsLoggedOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(".", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	var log logtest.Log
	w := &watched{paths: []string{dir}, log: slog.New(slog.NewTextHandler(&log, nil))}
	w.digest()
	w.digest()
	if n := strings.Count(log.String(), "cannot read all of a watched folder"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
