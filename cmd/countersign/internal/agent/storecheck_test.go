//go:build unix

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
)

func TestStoreFaultsNameTheMistake(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(os.WriteFile(in("a.key"), []byte(goodKey), 0o600))
	must(os.WriteFile(in("b.key"), []byte(strings.ToUpper(goodKey)), 0o600))
	must(os.Mkdir(in("shared"), 0o700))
	must(os.Mkdir(in("open"), 0o700))
	must(os.Chmod(in("open"), 0o755))
	for _, c := range []struct{ title, folder, key, says string }{
		{"all is well", "shared", "a.key", ""},
		{"again", "shared", "a.key", ""},
		{"another key", "shared", "b.key", "was made with another key: use the same key on all machines"},
		{"no folder", "absent", "a.key", "mount it, or make it with mode 0700"},
		{"open to others", "open", "a.key", "chmod go-rwx"},
		{"no key", "shared", "c.key", "store.key_file"},
	} {
		got := strings.Join(StoreFaults(t.Context(), config.Store{Folder: in(c.folder), KeyFile: in(c.key)}), "\n")
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.title, got, c.says)
		}
	}
	left, err := filepath.Glob(in("shared/??/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q are left, %v", left, err)
	}
	if got := StoreFaults(t.Context(), config.Store{}); len(got) != 1 || got[0] != "store: none is configured" {
		t.Errorf("without a store: %q", got)
	}
}
