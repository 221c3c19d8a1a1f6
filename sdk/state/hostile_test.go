//go:build unix

package state_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestAlteredFileIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, file string)
		says  string
	}{
		"open to the group": {func(t *testing.T, file string) { must(t, os.Chmod(file, 0o640)) }, "chmod go-rwx"},
		"open to others":    {func(t *testing.T, file string) { must(t, os.Chmod(file, 0o602)) }, "chmod go-rwx"},
		"a link to itself elsewhere": {func(t *testing.T, file string) {
			other := filepath.Join(t.TempDir(), "other")
			must(t, os.Rename(file, other))
			must(t, os.Symlink(other, file))
		}, "not a regular file"},
		"a pipe": {func(t *testing.T, file string) {
			must(t, os.Remove(file))
			must(t, syscall.Mkfifo(file, 0o600))
		}, "not a regular file"},
		"a folder": {func(t *testing.T, file string) {
			must(t, os.Remove(file))
			must(t, os.Mkdir(file, 0o700))
		}, "not a regular file"},
		"oversized":       {change(func(b []byte) []byte { return append(b, make([]byte, 4<<20)...) }), "are allowed"},
		"longer":          {change(func(b []byte) []byte { return append(b, 0) }), "cannot be decrypted"},
		"empty":           {change(func([]byte) []byte { return nil }), "does not begin"},
		"foreign":         {change(func([]byte) []byte { return []byte("-----BEGIN PRIVATE KEY-----") }), "does not begin"},
		"another version": {replace("state 1\n", "state 2\n"), "does not begin"},
		"another identity": {
			replace("example.org/web", "example.org/wep"), "cannot be decrypted",
		},
		"another authority": {replace(`"authority":"ca"`, `"authority":"cb"`), "cannot be decrypted"},
		"another name":      {replace(`"record":"default"`, `"record":"defaulu"`), "cannot be decrypted"},
		"a field more":      {replace(`{"record"`, `{"x":1,"record"`), "cannot be decrypted"},
		"no JSON":           {replace(`{"record"`, `["record"`), "not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			f, path := newFolder(t, newKey(t))
			c.spoil(t, only(t, path))
			got, err := f.Load(context.Background(), "default")
			if err == nil || len(got.Content) != 0 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, %v; want %q", got, err, c.says)
			}
		})
	}
}

func change(how func([]byte) []byte) func(*testing.T, string) {
	return func(t *testing.T, file string) {
		content, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, how(content), 0o600))
	}
}

func replace(old, now string) func(*testing.T, string) {
	return change(func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(now), 1) })
}

func TestFileOfOtherUserIsAnError(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	if os.Geteuid() != 0 {
		return // no file of another user can be made
	}
	must(t, os.Chown(only(t, path), 12345, -1))
	if _, err := f.Load(context.Background(), "default"); err == nil || !strings.Contains(err.Error(), "uid 12345") {
		t.Errorf("got %v", err)
	}
	must(t, os.Chown(path, 12345, -1))
	if err := f.Store(context.Background(), "default", example); err == nil || !strings.Contains(err.Error(), "uid 12345") {
		t.Errorf("got %v", err)
	}
}

func TestEveryBitAndByteOfFileCounts(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	file := only(t, path)
	whole, err := os.ReadFile(file)
	must(t, err)
	for i := range whole {
		must(t, os.WriteFile(file, whole[:i], 0o600))
		if got, err := f.Load(context.Background(), "default"); err == nil {
			t.Errorf("cut to %d bytes it gives %v", i, got)
		}
		spoiled := bytes.Clone(whole)
		spoiled[i] ^= 1 << (i % 8)
		must(t, os.WriteFile(file, spoiled, 0o600))
		if got, err := f.Load(context.Background(), "default"); err == nil {
			t.Errorf("with byte %d changed it gives %v", i, got)
		}
	}
}

func TestOtherKeyOpensNothing(t *testing.T) {
	_, path := newFolder(t, newKey(t))
	if got, err := open(t, path, newKey(t)).Load(context.Background(), "default"); err == nil || len(got.Content) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRecordFileCannotReplaceAnother(t *testing.T) {
	f, path := newFolder(t, newKey(t))
	first := only(t, path)
	store(t, f, "other", secret.Record{Identity: "other", Authority: "ca", Content: []byte("x")})
	found, err := filepath.Glob(filepath.Join(path, "*.state"))
	must(t, err)
	for _, file := range found {
		if file != first {
			must(t, os.Rename(file, first))
		}
	}
	if got, err := f.Load(context.Background(), "default"); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("got %v, %v", got, err)
	}
}
