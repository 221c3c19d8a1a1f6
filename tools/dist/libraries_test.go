package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func packed(t *testing.T, version string) string {
	t.Helper()
	out := t.TempDir()
	must(t, packLibraries(root(t), version, out, time.Unix(1e9, 0)))
	return out
}

// What an author unpacks is complete, and has the version of the release.
func TestLibrariesHaveProtocolLicenseAndVersion(t *testing.T) {
	out := packed(t, "v1.2.3-rc.1")
	for name, want := range map[string][]string{
		"countersign-provider-1.2.3-rc.1.tgz":            {"package/lib/provider.binpb", "package/LICENSE", "package/lib/index.d.ts", `"version": "1.2.3-rc.1"`},
		"countersign-provider-1.2.3-rc.1.crate":          {"countersign-provider-1.2.3-rc.1/src/proto.rs", "/LICENSE", "/Cargo.toml", `version = "1.2.3-rc.1"`},
		"countersign_provider-1.2.3rc1.tar.gz":           {"/src/countersign_provider/provider.binpb", "/PKG-INFO", "/LICENSE", `version = "1.2.3rc1"`},
		"countersign_provider-1.2.3rc1-py3-none-any.whl": {"countersign_provider/provider.binpb", ".dist-info/licenses/LICENSE", "countersign_provider/py.typed", "\nVersion: 1.2.3rc1\n", ".dist-info/RECORD,,"},
	} {
		text := contents(t, filepath.Join(out, name))
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s is missing in %s", part, name)
			}
		}
		if !isLibrary(name) {
			t.Errorf("%s is not signed", name)
		}
	}
}

func TestOtherFilesAreNotLibraries(t *testing.T) {
	for _, name := range []string{"countersign-provider-file_v0.1.0_linux_amd64.gz", "countersign-0.1.0.tgz", "countersign_0.1.0_amd64.deb"} {
		if isLibrary(name) {
			t.Error(name)
		}
	}
}

func TestLibrariesAreTheSameEachTime(t *testing.T) {
	first, second := packed(t, "v0.1.0"), packed(t, "v0.1.0")
	names, err := files(first)
	must(t, err)
	if len(names) != 4 {
		t.Errorf("packed %s", names)
	}
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(first, name))
		must(t, err)
		if b, err := os.ReadFile(filepath.Join(second, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs, %v", name, err)
		}
	}
}

func TestVersionIsInPythonsForm(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "0.1.0", "v1.0.0-rc.2": "1.0.0rc2", "v1.0.0-alpha1": "1.0.0a1", "v1.0.0-beta.3": "1.0.0b3", "v0.0.0-dev": "0.0.0.dev0+dev", "v1.0.0-Test-1.x": "1.0.0.dev0+test.1.x",
	} {
		if got := pythonVersion(version); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

// contents returns the names and texts in an archive.
func contents(t *testing.T, path string) string {
	t.Helper()
	var all strings.Builder
	if strings.HasSuffix(path, ".whl") {
		archive, err := zip.OpenReader(path)
		must(t, err)
		defer archive.Close()
		for _, file := range archive.File {
			in, err := file.Open()
			must(t, err)
			write(t, &all, file.Name, in)
			must(t, in.Close())
		}
		return all.String()
	}
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	must(t, err)
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		must(t, err)
		write(t, &all, header.Name, archive)
	}
}

func write(t *testing.T, to io.Writer, name string, from io.Reader) {
	t.Helper()
	_, err := io.Copy(to, io.MultiReader(strings.NewReader(name+"\n"), from))
	must(t, err)
}
