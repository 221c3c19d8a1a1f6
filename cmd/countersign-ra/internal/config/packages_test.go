package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// What a package has pinned changes with it, so nobody has to write it down; --provider-dir names
// the folder here.
func TestPackagePinsItsProviders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs packages")
	}
	folder := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(folder, "countersign-provider-vault"), nil, 0o755))
	pinned := strings.Repeat("ab", 32)
	l := lock.Lock{}
	l.Put(lock.Provider{Name: "vault", Version: "1", Protocol: 1, OS: runtime.GOOS, Arch: runtime.GOARCH, File: "countersign-provider-vault", SHA256: pinned})
	must(l.Write(lock.InstalledPath(folder)))
	text := strings.Replace(working, "sha256: "+pin, "user: ''", 1)
	if text == working {
		t.Fatal("the configuration pins nothing")
	}

	c, err := Parse("ra.yaml", []byte(text), folder)
	must(err)
	if got := c.Hosted().Providers[0].SHA256; got != pinned {
		t.Errorf("the pin is %q", got)
	}
	if _, err := Parse("ra.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "providers.vault.sha256 is not set") {
		t.Errorf("without the folder: %v", err)
	}
	// A lock file that is named alone counts.
	own := filepath.Join(t.TempDir(), "own.lock")
	must((&lock.Lock{}).Write(own))
	if _, err := Parse("ra.yaml", []byte(text+"\nlock: "+own+"\n"), folder); err == nil || !strings.Contains(err.Error(), "providers.vault.sha256 is not set") {
		t.Errorf("with a lock file: %v", err)
	}
}
