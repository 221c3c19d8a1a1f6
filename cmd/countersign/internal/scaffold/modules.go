package scaffold

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// carried are the modules that sdk/provider and the packages beside it compile: a provider
// builds with these and no other. The tests build one.
var carried = []string{
	"github.com/fatih/color", "github.com/fsnotify/fsnotify", "github.com/go-jose/go-jose/v4", "github.com/golang/protobuf", "github.com/google/jsonschema-go",
	"github.com/google/uuid", "github.com/hashicorp/go-hclog", "github.com/hashicorp/go-plugin", "github.com/hashicorp/yamux",
	"github.com/mattn/go-colorable", "github.com/mattn/go-isatty", "github.com/oklog/run", "go.yaml.in/yaml/v3", "golang.org/x/net", "golang.org/x/sys",
	"golang.org/x/text", "google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
}

// fromFiles reads go.mod and go.sum of the sdk's module. go.sum is taken whole: a build needs the
// hashes of the carried modules, "go list -m all" and "go doc" those of every go.mod in the graph.
func fromFiles(files fs.FS) (SDK, error) {
	mod, err := fs.ReadFile(files, "go.mod")
	if err != nil {
		return SDK{}, err
	}
	sum, err := fs.ReadFile(files, "go.sum")
	return SDK{modules: requiredOfCarried(mod), sum: sum}, err
}

// requiredOfCarried returns the carried modules that go.mod requires, as "path version".
func requiredOfCarried(mod []byte) (found []string) {
	for line := range strings.Lines(string(mod)) {
		words := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(words) >= 2 && slices.Contains(carried, words[0]) {
			found = append(found, words[0]+" "+words[1])
		}
	}
	slices.Sort(found)
	return found
}

// hashOfMod returns the hash of a go.mod for go.sum (https://go.dev/ref/mod#go-sum-files).
func hashOfMod(mod []byte) string {
	list := sha256.Sum256(fmt.Appendf(nil, "%x  go.mod\n", sha256.Sum256(mod)))
	return "h1:" + base64.StdEncoding.EncodeToString(list[:])
}

// writeCopy writes the sdk's files into a folder as a module of its own: without tests, with no
// other requirement than the carried modules.
func (s SDK) writeCopy(dir string) error {
	return fs.WalkDir(s.files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == "go.sum" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(s.files, name)
		if err != nil {
			return err
		}
		if name == "go.mod" {
			text = s.modOfCopy(text)
		}
		return writeFile(filepath.Join(dir, filepath.FromSlash(path.Clean(name))), text)
	})
}

func (s SDK) modOfCopy(mod []byte) []byte {
	head, _, _ := bytes.Cut(mod, []byte("\nrequire "))
	return fmt.Appendf(nil, "%s\nrequire (\n\t%s\n)\n", head, strings.Join(s.modules, "\n\t"))
}
