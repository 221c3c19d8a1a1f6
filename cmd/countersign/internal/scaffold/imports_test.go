package scaffold

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	countersign "github.com/countersign-dev/countersign"
)

// What the copied packages import is copied, too, or a carried module's: on each system.
func TestCopyHasEveryImport(t *testing.T) {
	source := countersign.ProviderSource()
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if !carries(source, imported) {
				t.Errorf("%s imports %s: add it to source.go or to carried", name, imported)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An author may import any package beside sdk/provider.
func TestCopyHasEveryPackageForProviders(t *testing.T) {
	source := countersign.ProviderSource()
	packages, err := os.ReadDir("../../../../sdk/provider")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range packages {
		if _, err := fs.Stat(source, "sdk/provider/"+entry.Name()); err != nil && entry.IsDir() {
			t.Errorf("%v: add it to source.go", err)
		}
	}
}

func carries(source fs.FS, imported string) bool {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // the standard library's
	}
	if below, ours := strings.CutPrefix(imported, module+"/"); ours {
		_, err := fs.Stat(source, below)
		return err == nil
	}
	return slices.ContainsFunc(carried, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") })
}
