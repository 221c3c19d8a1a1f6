package pluginhost_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/plugin-host/lock"
)

func TestPackagesLockHasToBeRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can install a package")
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, folder, path string)
		read  bool
	}{
		"good":               {func(*testing.T, string, string) {}, true},
		"behind root's link": {func(t *testing.T, folder, path string) { aside(t, folder, path) }, true},
		"missing":            {func(t *testing.T, _, path string) { must(t, os.Remove(path)) }, false},
		"of a user":          {func(t *testing.T, _, path string) { must(t, os.Chown(path, 65534, 65534)) }, false},
		"written by a group": {func(t *testing.T, _, path string) { must(t, os.Chmod(path, 0o664)) }, false},
		"folder of a user":   {func(t *testing.T, folder, _ string) { must(t, os.Chown(folder, 65534, 65534)) }, false},
		"folder for all":     {func(t *testing.T, folder, _ string) { must(t, os.Chmod(folder, 0o777)) }, false},
		"parent of a user":   {func(t *testing.T, folder, _ string) { must(t, os.Chown(filepath.Dir(folder), 65534, 65534)) }, false},
		"link to a user's": {func(t *testing.T, folder, path string) {
			must(t, os.Chown(aside(t, folder, path), 65534, 65534))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "providers")
			must(t, os.Mkdir(folder, 0o755))
			var l lock.Lock
			l.Put(build("a", "amd64"))
			path := lock.InstalledPath(folder)
			must(t, l.Write(path))
			c.spoil(t, folder, path)
			read, err := lock.Installed(folder)
			must(t, err)
			if (len(read) == 1) != c.read {
				t.Errorf("read %v", read)
			}
		})
	}
}

// Each package has a lock file of its own in the folder they share; one of them that a user could
// have written does not count, and the others do.
func TestPackagesPinWhatIsTheirs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can install a package")
	}
	folder := t.TempDir()
	must(t, os.Chmod(folder, 0o755))
	for file, names := range map[string][]string{lock.FileName: {"a"}, "countersign-more.lock": {"a", "b"}, "countersign-users.lock": {"c"}, "other.lock": {"d"}} {
		var l lock.Lock
		for _, name := range names {
			l.Put(build(name, runtime.GOARCH))
		}
		must(t, l.Write(filepath.Join(folder, file)))
	}
	must(t, os.Chown(filepath.Join(folder, "countersign-users.lock"), 65534, 65534))
	for name, file := range map[string]string{"a": lock.FileName, "b": "countersign-more.lock", "c": "", "d": ""} {
		path, pinned, err := lock.InstalledPin(folder, name)
		must(t, err)
		if file == "" && path != "" || file != "" && (path != filepath.Join(folder, file) || pinned.Name != name) {
			t.Errorf("%s is pinned by %q: %v", name, path, pinned)
		}
	}
	must(t, os.WriteFile(filepath.Join(folder, "countersign-more.lock"), []byte("{"), 0o644))
	if _, _, err := lock.InstalledPin(folder, "a"); err == nil || !strings.Contains(err.Error(), "countersign-more.lock") {
		t.Errorf("a broken lock file: %v", err)
	}
}

// aside moves the file beside its folder, and puts a link in its place.
func aside(t *testing.T, folder, path string) string {
	t.Helper()
	real := filepath.Join(filepath.Dir(folder), "real.lock")
	must(t, os.Rename(path, real))
	must(t, os.Symlink(real, path))
	return real
}
