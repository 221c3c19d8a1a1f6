package pluginhost_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/plugin-host/lock"
)

func build(name, arch string) lock.Provider {
	return lock.Provider{
		Name: name, Version: "1", Protocol: 1, OS: "linux", Arch: arch,
		File: "countersign-provider-" + name, SHA256: strings.Repeat("0a", 32),
	}
}

func TestWriteReplacesOldBuildOfPlatform(t *testing.T) {
	path := filepath.Join(t.TempDir(), "countersign.lock")
	if _, err := lock.Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var l lock.Lock
	for _, p := range []lock.Provider{build("b", "arm64"), build("b", "amd64"), build("a", "amd64")} {
		l.Put(p)
	}
	newer := build("b", "amd64")
	newer.Version, newer.File, newer.SecretSettings = "2", "countersign-provider-b@2", []string{}
	newer.AddressSettings = []lock.AddressSetting{{Setting: "url", Form: "url", Pattern: "^https://"}}
	l.Put(newer)
	must(t, l.Write(path))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	read, err := lock.Read(path)
	must(t, err)
	if len(read.Providers) != 3 || read.Providers[0].Name != "a" || read.Providers[0].SecretSettings != nil || !reflect.DeepEqual(read.Providers[1], newer) || newer.FileVersion() != "2" {
		t.Errorf("read %+v", read.Providers)
	}
	if p, ok := read.Of("b", "linux", "arm64"); !ok || p.FileVersion() != "" {
		t.Errorf("of arm64: %+v", p)
	}
	if _, ok := read.Of("b", "windows", "amd64"); ok {
		t.Error("a build for windows was found")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestLockWritableByOthersIsNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string // empty: it is read
	}{
		"good":                 {func(*testing.T, string) {}, ""},
		"read by all":          {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o444)) }, ""},
		"written by the group": {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o664)) }, "writable by others (mode 0664)"},
		"written by all":       {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o646)) }, "writable by others (mode 0646)"},
		"in a loose folder":    {func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0o777)) }, "its folder is writable by others"},
		"in a sticky folder":   {func(t *testing.T, path string) { must(t, os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky)) }, ""},
		"a folder":             {func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o755)) }, "not a regular file (d"},
		"a pipe, which hangs":  {func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, unix.Mkfifo(path, 0o644)) }, "not a regular file (p"},
		"too long":             {func(t *testing.T, path string) { must(t, os.Truncate(path, 2<<20)) }, "has more than 1048576 bytes"},
		"empty":                {func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) }, "create it again"},
		"behind a link, as Kubernetes mounts it": {func(t *testing.T, path string) {
			data := filepath.Join(filepath.Dir(path), "..data")
			must(t, os.Mkdir(data, 0o755))
			must(t, os.Rename(path, filepath.Join(data, "f")))
			must(t, os.Symlink("..data/f", path))
		}, ""},
		"behind a link to a loose folder": {func(t *testing.T, path string) {
			loose := filepath.Join(filepath.Dir(path), "loose")
			must(t, os.Mkdir(loose, 0o755))
			must(t, os.Chmod(loose, 0o777))
			must(t, os.Rename(path, filepath.Join(loose, "f")))
			must(t, os.Symlink("loose/f", path))
		}, "its folder is writable by others"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "countersign.lock")
			var l lock.Lock
			l.Put(build("a", "amd64"))
			must(t, l.Write(path))
			c.spoil(t, path)
			_, err := lock.Read(path)
			if c.want == "" {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestLockOfOtherUserIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "countersign.lock")
	must(t, new(lock.Lock).Write(path))
	if err := os.Chown(path, 65534, 65534); err != nil {
		return // only root can make another's file
	}
	if _, err := lock.Read(path); err == nil || !strings.Contains(err.Error(), "is owned by uid 65534, not by root or the current user") {
		t.Errorf("got %v", err)
	}
}

func TestSecretSettingsArePointers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "countersign.lock")
	for want, pointers := range map[string][]string{
		"": {"/password", "/headers/*"}, `"b" has an invalid secret setting "password": not a JSON Pointer`: {"password"},
		`"b" has 1001 secret settings, 1000 are allowed`: slices.Repeat([]string{"/p"}, 1001),
	} {
		p := build("b", "amd64")
		p.SecretSettings = pointers
		var l lock.Lock
		l.Put(p)
		must(t, l.Write(path))
		if _, err := lock.Read(path); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", pointers, err, want)
		}
	}
}

func TestAddressSettingsHaveNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "countersign.lock")
	one := lock.AddressSetting{Setting: "at", Form: "of a newer version"}
	for want, settings := range map[string][]lock.AddressSetting{
		"": {one}, `"b" has an address setting without a name`: {{Form: "url"}},
		`"b" has 17 address settings, 16 are allowed`: slices.Repeat([]lock.AddressSetting{one}, 17),
	} {
		p := build("b", "amd64")
		p.AddressSettings = settings
		var l lock.Lock
		l.Put(p)
		must(t, l.Write(path))
		if _, err := lock.Read(path); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", settings, err, want)
		}
	}
}

func TestProviderWithoutVersionIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "countersign.lock")
	p := build("b", "amd64")
	p.Version = ""
	var l lock.Lock
	l.Put(p)
	must(t, l.Write(path))
	if _, err := lock.Read(path); err == nil || !strings.Contains(err.Error(), `"b" has no version; lock it again`) {
		t.Errorf("got %v", err)
	}
}

// FuzzRead holds that whatever is read can be trusted to name files in a folder only.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"format": 1, "providers": [{"name": "a", "version": "1", "protocol": 1, "os": "linux", "arch": "amd64", "file": "countersign-provider-a", "sha256": "` + strings.Repeat("0a", 32) + `"}]}`))
	f.Add([]byte(`{"format": 1} {}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "l")
		must(t, os.WriteFile(path, text, 0o644))
		l, err := lock.Read(path)
		if err != nil {
			return
		}
		for _, p := range l.Providers {
			if filepath.Base(p.File) != p.File || len(p.SHA256) != 64 || p.Version == "" {
				t.Errorf("%+v was read", p)
			}
		}
	})
}
