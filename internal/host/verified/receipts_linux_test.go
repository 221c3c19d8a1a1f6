package verified

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// settled returns the state of a file whose last change is long ago.
func settled(t *testing.T, path string) receipt {
	t.Helper()
	r := stateOf(t, path)
	r.Changed = r.Changed.Add(-time.Hour)
	return r
}

func stateOf(t *testing.T, path string) receipt {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	r := receiptOf(info)
	r.SHA256 = strings.Repeat("a", 64)
	return r
}

func newReceipts(t *testing.T) (Receipts, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "binary")
	if err := os.WriteFile(path, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Receipts{filepath.Join(dir, "cache"), slog.New(slog.DiscardHandler)}, path
}

func TestReceiptSavesHashingUnchangedFile(t *testing.T) {
	r, path := newReceipts(t)
	now := settled(t, path)
	if got := r.find(path, now); got != "" {
		t.Errorf("before there is one: %q", got)
	}
	r.keep(path, now)
	if got := r.find(path, now); got != now.SHA256 {
		t.Errorf("got %q, want the kept sum", got)
	}
	if got := r.find(path+"x", now); got != "" {
		t.Errorf("another path: %q", got)
	}
}

func TestChangedFileIsHashedAgain(t *testing.T) {
	r, path := newReceipts(t)
	was := stateOf(t, path)
	if err := r.write(map[string]receipt{path: was}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*receipt){
		"another device": func(r *receipt) { r.Device++ }, "another inode": func(r *receipt) { r.Inode++ },
		"another size": func(r *receipt) { r.Size++ }, "written since": func(r *receipt) { r.Written = r.Written.Add(1) },
		"changed since, its mtime put back": func(r *receipt) { r.Changed = r.Changed.Add(1) },
	} {
		now := was
		change(&now)
		if got := r.find(path, now); got != "" {
			t.Errorf("%s: the old sum was taken", what)
		}
	}
}

func TestRecentlyWrittenFileGetsNoReceipt(t *testing.T) {
	r, path := newReceipts(t)
	now := stateOf(t, path)
	r.keep(path, now)
	if got := r.find(path, now); got != "" {
		t.Error("a file written a moment ago has a receipt")
	}
}

func TestUntrustedReceiptsAreNotRead(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, file string) error{
		"loose mode": func(_ *testing.T, file string) error { return os.Chmod(file, 0o644) },
		"a link": func(_ *testing.T, file string) error {
			return os.Rename(file, file+"x")
		},
		"another's": func(t *testing.T, file string) error { return os.Chown(file, 65534, 65534) },
		"no JSON":   func(_ *testing.T, file string) error { return os.WriteFile(file, []byte("x"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			r, path := newReceipts(t)
			now := settled(t, path)
			r.keep(path, now)
			file := filepath.Join(r.Folder, receiptsFile)
			if err := spoil(t, file); err != nil {
				t.Fatal(err)
			}
			if what == "a link" {
				if err := os.Symlink(file+"x", file); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.find(path, now); got != "" {
				t.Error("it was read")
			}
		})
	}
}

// A file of root's that an ordinary user runs: the receipt stands for the content.
func TestHeldFileIsHashedOnce(t *testing.T) {
	r, _ := newReceipts(t)
	const path = "/bin/sh" // root's, and old
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	first := hold(t, real, r)
	forged := stateOf(t, real)
	if err := r.write(map[string]receipt{real: forged}); err != nil {
		t.Fatal(err)
	}
	if second := hold(t, real, r); second != forged.SHA256 || second == first {
		t.Errorf("got %s, want the receipt's", second)
	}
}

func hold(t *testing.T, path string, r Receipts) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b, err := holdFile(path, file, info, r)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	return b.SHA256
}
