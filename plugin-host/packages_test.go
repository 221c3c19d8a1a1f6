package pluginhost_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// What an author gets of each registry is complete. The scripts that pack it install it from there.
func TestPackagesHaveProtocolAndLicense(t *testing.T) {
	for name, want := range map[string]struct {
		pattern string
		read    func(t *testing.T, path string) []string
		files   []string
	}{
		"python": {"*.whl", namesInZip, []string{"countersign_provider/provider.binpb", ".dist-info/licenses/LICENSE", "countersign_provider/py.typed"}},
		"node":   {"*.tgz", namesInTar, []string{"package/lib/provider.binpb", "package/LICENSE", "package/lib/index.d.ts"}},
		"rust":   {"*.crate", namesInTar, []string{"/src/proto.rs", "/LICENSE", "/Cargo.toml"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := filepath.Glob(filepath.Join(programs.Foreign(t, languages[name].folder), "dist", want.pattern))
			if err != nil || len(found) != 1 {
				t.Fatalf("%d packages, %v", len(found), err)
			}
			names := strings.Join(want.read(t, found[0]), "\n") + "\n"
			for _, file := range want.files {
				if !strings.Contains(names, file+"\n") {
					t.Errorf("%s is missing in\n%s", file, names)
				}
			}
		})
	}
}

func namesInZip(t *testing.T, path string) (names []string) {
	t.Helper()
	archive, err := zip.OpenReader(path)
	must(t, err)
	defer archive.Close()
	for _, file := range archive.File {
		names = append(names, file.Name)
	}
	return names
}

func namesInTar(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	must(t, err)
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		must(t, err)
		names = append(names, header.Name)
	}
}
