package state_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var example = secret.Record{Identity: "spiffe://example.org/web", Authority: "ca", Content: []byte("the key and the chain")}

func newKey(t *testing.T) []byte {
	t.Helper()
	key := make([]byte, state.MinKey)
	rand.Read(key)
	return key
}

// newFolder returns one that keeps the example as "default", and its path.
func newFolder(t *testing.T, key []byte) (*state.Folder, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deep", "state")
	f := open(t, path, key)
	store(t, f, "default", example)
	return f, path
}

func open(t *testing.T, path string, key []byte) *state.Folder {
	t.Helper()
	f, err := state.Open(path, key)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func store(t *testing.T, f *state.Folder, name string, r secret.Record) {
	t.Helper()
	if err := f.Store(context.Background(), name, r); err != nil {
		t.Fatal(err)
	}
}

// only returns the path of the one file in the folder.
func only(t *testing.T, path string) string {
	t.Helper()
	found, err := os.ReadDir(path)
	if err != nil || len(found) != 1 {
		t.Fatalf("the folder has %v, %v", found, err)
	}
	return filepath.Join(path, found[0].Name())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestStoredRecordIsLoadedWithSameKey(t *testing.T) {
	key := newKey(t)
	_, path := newFolder(t, key)
	got, err := open(t, path, key).Load(context.Background(), "default")
	if err != nil || got.Identity != example.Identity || got.Authority != example.Authority || !bytes.Equal(got.Content, example.Content) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestMissingRecordIsEmpty(t *testing.T) {
	f, _ := newFolder(t, newKey(t))
	missing := open(t, filepath.Join(t.TempDir(), "missing"), newKey(t))
	for _, f := range []*state.Folder{f, missing} {
		if got, err := f.Load(context.Background(), "other"); err != nil || len(got.Content) != 0 {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

func TestEmptyRecordRemovesFile(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	for range 2 {
		store(t, f, "default", secret.Record{})
	}
	if found, err := os.ReadDir(path); err != nil || len(found) != 0 {
		t.Errorf("the folder has %v, %v", found, err)
	}
}

func TestFileIsPrivateAndShowsOnlyItsIdentity(t *testing.T) {
	_, path := newFolder(t, newKey(t))
	file := only(t, path)
	for at, want := range map[string]fs.FileMode{path: 0o700, file: 0o600} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", at, info.Mode(), err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || bytes.Contains(text, example.Content) || !bytes.Contains(text, []byte(`"identity":"spiffe://example.org/web"`)) {
		t.Errorf("the file is %q, %v", text, err)
	}
}

func TestEachWriteHasNewSaltAndNonce(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	first, err := os.ReadFile(only(t, path))
	must(t, err)
	store(t, f, "default", example)
	second, err := os.ReadFile(only(t, path))
	must(t, err)
	_, a, _ := bytes.Cut(first[20:], []byte("\n"))
	_, b, _ := bytes.Cut(second[20:], []byte("\n"))
	if bytes.Equal(a[:32], b[:32]) || bytes.Equal(a[32:44], b[32:44]) || bytes.Equal(a[44:], b[44:]) {
		t.Error("two writes of the same record have something in common")
	}
}

func TestUnfinishedFileOfEarlierRunIsReplaced(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	file := only(t, path)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	must(t, os.Symlink(elsewhere, filepath.Join(path, ".new-"+filepath.Base(file))))
	store(t, f, "default", example)
	only(t, path)
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("a link was followed")
	}
}

func TestUntrustedFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	open, file, link := filepath.Join(dir, "open"), filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, os.Mkdir(open, 0o700))
	must(t, os.Symlink(open, link))
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Chmod(open, 0o750))
	for path, says := range map[string]string{open: "chmod go-rwx", file: "not a folder", link: "not a link", "": "no name"} {
		if _, err := state.Open(path, newKey(t)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}

func TestFolderOpenedLaterIsNotUsed(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	must(t, os.Chmod(path, 0o755))
	if _, err := f.Load(context.Background(), "default"); err == nil {
		t.Error("a record was loaded")
	}
	if err := f.Store(context.Background(), "default", example); err == nil {
		t.Error("a record was stored")
	}
}

func TestOversizedRecordIsNotStored(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	for _, r := range []secret.Record{
		{Content: make([]byte, 4<<20)}, {Identity: strings.Repeat("x", 64<<10), Content: []byte("x")},
	} {
		if err := f.Store(context.Background(), "default", r); err == nil || !strings.Contains(err.Error(), "are allowed") {
			t.Errorf("got %v", err)
		}
	}
	only(t, path)
	if got, err := f.Load(context.Background(), "default"); err != nil || !bytes.Equal(got.Content, example.Content) {
		t.Errorf("what was there is gone: %v, %v", got, err)
	}
}

func TestWeakKeyIsRefused(t *testing.T) {
	for _, key := range []string{
		"", "short", strings.Repeat("a", 64), strings.Repeat("password", 4), strings.Repeat("0123", 16), strings.Repeat("\x00", 32),
		hex.EncodeToString(newKey(t))[:32], strings.Repeat("x", state.MaxKey+1),
	} {
		if _, err := state.Open(t.TempDir(), []byte(key)); err == nil || len(key) > 8 && strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}
	for range 1000 {
		key := newKey(t)
		if err := state.CheckKey(key); err != nil {
			t.Fatalf("%x: %v", key, err)
		}
		if err := state.CheckKey([]byte(hex.EncodeToString(key))); err != nil {
			t.Fatalf("%x: %v", key, err)
		}
	}
}

func TestKeyFileIsReadWithoutTrailingNewline(t *testing.T) {
	text := hex.EncodeToString(newKey(t))
	binary := string(newKey(t)[:30]) + "\xff\n"
	for content, want := range map[string]string{text: text, text + "\n": text, text + " \r\n": text, binary: binary} {
		path := filepath.Join(t.TempDir(), "key")
		must(t, os.WriteFile(path, []byte(content), 0o400))
		if got, err := state.ReadKey(path); err != nil || string(got) != want {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
}

func TestBadKeyFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	good := hex.EncodeToString(newKey(t))
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		must(t, os.Chmod(path, mode))
		return path
	}
	for path, says := range map[string]string{
		file("group", good, 0o660): "chmod go-rwx", file("others", good, 0o604): "chmod go-rwx", file("short", good[:20], 0o600): "32 random bytes",
		file("regular", strings.Repeat("ab", 40), 0o600): "too regular", file("long", strings.Repeat(good, 100), 0o600): "more than",
		dir: "not a regular file", filepath.Join(dir, "missing"): "no such file",
	} {
		_, err := state.ReadKey(path)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), good[:16]) {
			t.Errorf("%s: got %v, want %q", path, err, says)
		}
	}
}

// systemd and kubelets give a service's user a file of root by its group.
func TestGroupMayReadKeyFileOfRootAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(path, []byte(hex.EncodeToString(newKey(t))), 0o600))
	must(t, os.Chmod(path, 0o440))
	if _, err := state.ReadKey(path); (err == nil) != (os.Geteuid() == 0) {
		t.Errorf("uid %d: %v", os.Geteuid(), err)
	}
}

func TestFolderShowsNoKey(t *testing.T) {
	key := []byte(hex.EncodeToString(newKey(t)))
	f := open(t, filepath.Join(t.TempDir(), "state"), key)
	if text := fmt.Sprintf("%v %+v %#v %s %x %d", f, f, f, f, f, f); strings.Contains(text, string(key)) || strings.Contains(text, fmt.Sprint(key[0], key[1])) {
		t.Error(text)
	}
}
