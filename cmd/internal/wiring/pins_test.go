package wiring

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// An upgrade of a package replaces the provider and the package's pin, and no other.
func TestPinBesideAPackagesLockIsWarnedOf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs packages")
	}
	folder, hash := t.TempDir(), strings.Repeat("ab", 32)
	for _, name := range []string{"file", "other"} {
		check(t, os.WriteFile(filepath.Join(folder, "countersign-provider-"+name), nil, 0o755))
	}
	l := lock.Lock{}
	l.Put(lock.Provider{Name: "file", Version: "1", Protocol: 1, OS: runtime.GOOS, Arch: runtime.GOARCH, File: "countersign-provider-file", SHA256: hash})
	own := filepath.Join(t.TempDir(), lock.FileName)
	check(t, l.Write(own))
	check(t, l.Write(lock.InstalledPath(folder)))
	for what, test := range map[string]struct{ providers, by string }{
		"by the package": {"[{name: file}]", ""},
		"by the entry":   {"[{name: mine, provider: file, sha256: " + hash + "}]", "providers.mine.sha256 pins provider file"},
		"of another":     {"[{name: other, sha256: " + hash + "}]", ""},
		"by a lock file": {"[{name: file}]\nlock: " + own, own + " pins provider file"},
	} {
		c, _, err := config.Read(config.Input{File: []byte("providers: " + test.providers + "\n"), FileName: "c.yaml"})
		check(t, err)
		if path, wanted := c.LockPath(); wanted {
			locked, err := Locked(path, wanted)
			check(t, err)
			check(t, c.Pin(path, locked))
		}
		check(t, PinInstalled(&c, []string{folder}, func(string) {}))
		got := strings.Join(OvertakenPins(&c, []string{folder}), "\n")
		if got == "" != (test.by == "") || !strings.HasPrefix(got, test.by) || got != "" && !strings.Contains(got, lock.InstalledPath(folder)) {
			t.Errorf("%s: %q", what, got)
		}
	}
}

var check = fatal.If

// A folder that cannot be searched is named: "sha256 is not set" would send the operator elsewhere.
func TestFolderThatCannotBeSearchedIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink("loop", dir); err != nil {
		t.Fatal(err)
	}
	c, _, err := config.Read(config.Input{File: []byte("providers: [{name: file}]\n"), FileName: "c.yaml"})
	check(t, err)
	err = PinInstalled(&c, []string{dir, t.TempDir()}, func(string) {})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "cannot read its folder") {
		t.Errorf("got %v", err)
	}
	if err := PinInstalled(&c, []string{t.TempDir()}, func(string) {}); err != nil {
		t.Errorf("not installed: got %v", err)
	}
}
