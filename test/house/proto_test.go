//go:build check

package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreignProtos have the names of others: they are on the wire, as the type URL of a resource.
var foreignProtos = map[string]bool{"proto/istio/networking/nds/v1/nds.proto": true}

var protoPackage = regexp.MustCompile(`(?m)^package ([a-z0-9.]+);$`)

// A program that links two definitions of one name cannot start, and istio.io/api defines the names of
// Istio. So this tree has its own.
func TestProtosHaveNamesOfTheirOwn(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "proto/*/v*/*.proto"))
	deeper, _ := filepath.Glob(filepath.Join(root, "proto/*/*/v*/*.proto"))
	deepest, _ := filepath.Glob(filepath.Join(root, "proto/*/*/*/v*/*.proto"))
	if found = slices.Concat(found, deeper, deepest); err != nil || len(found) < 5 {
		t.Fatalf("only %d files, %v", len(found), err)
	}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := strings.TrimPrefix(path, root+"/")
		name := protoPackage.FindSubmatch(text)
		if name == nil || !strings.HasPrefix(string(name[1]), "countersign.") && !foreignProtos[file] {
			t.Errorf("%s: its package is %q, which others may define: begin it with countersign", file, name)
		}
	}
}
