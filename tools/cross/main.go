// Command cross checks that packages compile for another system than this one, by the
// types alone: GOOS=darwin cross ./sdk/... fails where `GOOS=darwin go build ./sdk/...`
// does for an error in the source. No machine code is made, and of what is not in this
// house no function's body is looked at, so that it takes seconds where a compiler that
// has to make Envoy's types for each system takes minutes. Run it by `make cross`.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const house = "github.com/countersign-dev/countersign/"

// listed is a package as `go list -json` prints it.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string // of import paths: what the standard library vendors
	Module          *struct{ GoVersion string }
}

func main() {
	log.SetFlags(0)
	packages, err := list(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	c := checker{files: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range packages {
		if err := c.check(p); err != nil {
			log.Fatalf("%s for %s: %v", p.ImportPath, build.Default.GOOS, err)
		}
	}
	log.Printf("%d packages for %s are sound", len(packages), build.Default.GOOS)
}

// list returns the packages and all that they import, each after those that it imports.
func list(patterns []string) (all []listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,ImportPath,GoFiles,ImportMap,Module"}, patterns...)...)
	// With cgo, the C compiler of that system would be needed.
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	for from := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := from.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

type checker struct {
	files *token.FileSet
	done  map[string]*types.Package
}

func (c *checker) check(p listed) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var found []error
	rules := types.Config{
		Importer:         imports{c.done, p.ImportMap},
		Sizes:            types.SizesFor("gc", build.Default.GOARCH),
		IgnoreFuncBodies: !strings.HasPrefix(p.ImportPath, house),
		Error:            func(err error) { found = append(found, err) },
	}
	if p.Module != nil {
		rules.GoVersion = "go" + p.Module.GoVersion
	}
	c.done[p.ImportPath], _ = rules.Check(p.ImportPath, c.files, files, nil)
	return errors.Join(found...)
}

// imports finds what a package imports among those that were checked before it.
type imports struct {
	done    map[string]*types.Package
	renamed map[string]string
}

func (i imports) Import(path string) (*types.Package, error) {
	if real, ok := i.renamed[path]; ok {
		path = real
	}
	if pkg := i.done[path]; pkg != nil {
		return pkg, nil
	}
	return nil, fmt.Errorf("%s is not among the packages", path)
}
