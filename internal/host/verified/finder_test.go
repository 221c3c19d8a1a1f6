package verified_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/verified"
	"github.com/countersign-dev/countersign/internal/test/fatal"
)

// script is a provider that leaves a trace if it is ever run, which no finder does.
const script = "#!/bin/sh\ntouch ran\n"

// folder makes one with files of the given modes; a name that ends in "/" is a folder.
func folder(t *testing.T, files map[string]os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(script), 0o600))
		must(t, os.Chmod(path, mode))
	}
	return dir
}

func TestUnsafeBinaryIsRefusedWithReason(t *testing.T) {
	const file = "countersign-provider-acme"
	for name, c := range map[string]struct {
		make func(t *testing.T) string
		want string
	}{
		"good":             {func(t *testing.T) string { return folder(t, map[string]os.FileMode{file: 0o755}) }, ""},
		"not executable":   {func(t *testing.T) string { return folder(t, map[string]os.FileMode{file: 0o644}) }, "not executable"},
		"others may write": {func(t *testing.T) string { return folder(t, map[string]os.FileMode{file: 0o777}) }, "writable by others"},
		"group may write":  {func(t *testing.T) string { return folder(t, map[string]os.FileMode{file: 0o775}) }, "writable by others"},
		"setuid":           {func(t *testing.T) string { return folder(t, map[string]os.FileMode{file: 0o755 | os.ModeSetuid}) }, "set-user-ID"},
		"loose folder": {func(t *testing.T) string {
			dir := folder(t, map[string]os.FileMode{file: 0o755})
			must(t, os.Chmod(dir, 0o777))
			return dir
		}, "its folder is writable by others"},
		"a folder": {func(t *testing.T) string {
			return folder(t, map[string]os.FileMode{file + "/x": 0o755})
		}, "not a regular file"},
		"link inside": {func(t *testing.T) string {
			dir := folder(t, map[string]os.FileMode{"acme-1.0": 0o755})
			must(t, os.Symlink("acme-1.0", filepath.Join(dir, file)))
			return dir
		}, ""},
		"link that leaves": {func(t *testing.T) string {
			other, dir := folder(t, map[string]os.FileMode{file: 0o755}), t.TempDir()
			must(t, os.Symlink(filepath.Join(other, file), filepath.Join(dir, file)))
			return dir
		}, "outside its folder"},
		"dangling link": {func(t *testing.T) string {
			dir := t.TempDir()
			must(t, os.Symlink("nowhere", filepath.Join(dir, file)))
			return dir
		}, "cannot read it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.make(t)
			_, err := verified.Finder{Dirs: []string{dir}}.Find("acme")
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if _, refused := errors.AsType[*verified.RefusedError](err); !refused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			// A later folder does not help: what runs must not depend on who spoiled the first.
			good := folder(t, map[string]os.FileMode{file: 0o755})
			if _, err := (verified.Finder{Dirs: []string{dir, good}}).Find("acme"); err == nil {
				t.Error("the next folder's was taken instead")
			}
		})
	}
}

func TestFileOfOtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make another user's file")
	}
	dir := folder(t, map[string]os.FileMode{"countersign-provider-acme": 0o755})
	must(t, os.Chown(filepath.Join(dir, "countersign-provider-acme"), 65534, 65534))
	if _, err := (verified.Finder{Dirs: []string{dir}}).Find("acme"); err == nil || !strings.Contains(err.Error(), "is owned by uid 65534") {
		t.Errorf("got %v", err)
	}
}

func TestProviderNameCannotBeAPath(t *testing.T) {
	for _, name := range []string{"", "../acme", "a/b", `a\b`, "-acme", "Acme", "a.b", "a\x00b", strings.Repeat("a", 64)} {
		if _, err := (verified.Finder{Dirs: []string{t.TempDir()}}).Find(name); err == nil || !strings.Contains(err.Error(), "invalid provider") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestFirstFolderWinsAndListShowsShadowed(t *testing.T) {
	first := folder(t, map[string]os.FileMode{"countersign-provider-acme": 0o755})
	second := folder(t, map[string]os.FileMode{"countersign-provider-acme": 0o755, "countersign-provider-other": 0o755, "unrelated": 0o755})
	finder := verified.Finder{Dirs: []string{first, second, filepath.Join(second, "missing")}}
	found, err := finder.Find("acme")
	if err != nil || filepath.Dir(found.Path) != first {
		t.Errorf("found %+v, %v", found, err)
	}
	all := finder.List()
	if len(all) != 3 || all[0].ShadowedBy != "" || all[1].ShadowedBy != all[0].Path || all[2].Name != "other" {
		t.Errorf("list %+v", all)
	}
	_, err = finder.Find("absent")
	if _, ok := errors.AsType[*verified.NotFoundError](err); !ok || !strings.Contains(err.Error(), "installed: acme, other") || !strings.Contains(err.Error(), first) {
		t.Errorf("got %v", err)
	}
	for _, dir := range []string{first, second, "."} {
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			t.Error("a provider was run")
		}
	}
}

func TestFoldersAreSearchedInOrder(t *testing.T) {
	got := verified.DefaultDirs(verified.Search{
		ProviderDirs: []string{"/a"}, ProviderPath: "/b:/c:/a", Executable: "/opt/d/countersign", DataHome: "/e", Home: "/h",
	})
	want := []string{"/a", "/b", "/c", "/opt/d", "/e/countersign/providers", "/opt/lib/countersign/providers", "/usr/lib/countersign/providers"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v, want %v", got, want)
	}
}

var must = fatal.If

func TestOnlyNamedVersionIsFound(t *testing.T) {
	dir := folder(t, map[string]os.FileMode{
		"countersign-provider-acme@1.2.0": 0o755, "countersign-provider-acme@2.0.0-rc.1+x": 0o755, "countersign-provider-acme@": 0o755,
		"countersign-provider-acme@..": 0o755,
	})
	finder := verified.Finder{Dirs: []string{dir}}
	found, err := finder.FindVersion("acme", "1.2.0")
	if err != nil || found.Version != "1.2.0" || filepath.Base(found.Path) != "countersign-provider-acme@1.2.0" {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := finder.Find("acme"); err == nil || !strings.Contains(err.Error(), "installed: acme@..") || !strings.Contains(err.Error(), "to run a version, lock it: countersign provider lock acme@") {
		t.Errorf("without a version: %v", err)
	}
	for _, version := range []string{"..", "a/b", "@", "-1", "1 2", strings.Repeat("1", 65)} {
		if _, err := finder.FindVersion("acme", version); err == nil || !strings.Contains(err.Error(), "invalid provider") {
			t.Errorf("%q: %v", version, err)
		}
	}
	refused := 0
	for _, f := range finder.List() {
		if f.Refused != nil {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d of the list are refused", refused)
	}
}

func TestForeignBinaryIsDetectedWithoutRunning(t *testing.T) {
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o755))
		return path
	}
	changed := func(at int, value byte) []byte {
		other := append([]byte(nil), self...)
		other[at] = value
		return other
	}
	const machine, abi = 18, 7 // offsets in an ELF header
	for path, want := range map[string]string{
		os.Args[0]:                             "",
		write("s390", changed(machine, 22)):    "built for s390x, but this machine is",
		write("freebsd", changed(abi, 9)):      "built for another system (ELFOSABI_FREEBSD)",
		write("text", []byte("hello")):         "neither an ELF file nor a script",
		write("script", []byte("#!/bin/sh\n")): "",
		write("lost", []byte("#! /no/such\n")): `its first line names "/no/such", which does not exist`,
		write("nothing", []byte("#!\n")):       `its first line names "nothing"`,
		filepath.Join(dir, "absent"):           "no such file",
	} {
		err := verified.CheckProgram(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", filepath.Base(path), err, want)
		}
	}
}
