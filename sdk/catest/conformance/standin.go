package conformance

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// standIn is the package of the CA that a new provider signs with.
const standIn = "github.com/countersign-dev/countersign/sdk/catest"

// NoStandIn fails the test while the program of the current folder signs with package catest:
// with a stand-in, which no peer trusts, in the place of a CA. It names each file and function
// that does. It reads the folder's code, and that of the packages of the same module which it
// imports; tests may use catest.
func NoStandIn(tb testing.TB) {
	tb.Helper()
	found, err := standIns()
	if err != nil {
		tb.Fatal(err)
	}
	for _, place := range found {
		tb.Errorf("%s signs with a CA in memory, which no peer trusts: put your CA's client in its place (step 4 of docs/write-a-provider.md)", place)
	}
	if len(found) > 0 {
		tb.FailNow()
	}
}

// standIns returns where the program of this folder makes stand-ins.
func standIns() ([]string, error) {
	s := stands{fset: token.NewFileSet(), seen: map[string]bool{}}
	if s.module, s.root = moduleOf("."); s.module == "" {
		return nil, errors.New("there is no go.mod in this folder or above")
	}
	err := s.look(".")
	return s.found, err
}

type stands struct {
	fset         *token.FileSet
	module, root string // its path and its folder
	seen         map[string]bool
	found        []string
}

// moduleOf returns the module that a folder belongs to.
func moduleOf(dir string) (module, root string) {
	dir, err := filepath.Abs(dir)
	for ; err == nil; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && dir != filepath.Dir(dir) {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 1 && words[0] == "module" {
				return strings.Trim(words[1], `"`), dir
			}
		}
		break
	}
	return "", ""
}

// look reads a package's files, and then what they import of the module.
func (s *stands) look(dir string) error {
	if s.seen[dir] {
		return nil
	}
	s.seen[dir] = true
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(s.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if err := s.file(name, file); err != nil {
			return err
		}
	}
	return nil
}

func (s *stands) file(name string, file *ast.File) error {
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		if imported == standIn {
			s.found = append(s.found, users(name, file, called(spec))...)
		}
		if below, ours := strings.CutPrefix(imported, s.module+"/"); ours {
			if err := s.look(filepath.Join(s.root, filepath.FromSlash(below))); err != nil {
				return err
			}
		}
	}
	return nil
}

// called is the name that a file has for a package.
func called(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	return path.Base(standIn)
}

// users returns the functions that use the package, or the file if no function does.
func users(name string, file *ast.File, pkg string) (found []string) {
	for _, declared := range file.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Body != nil && uses(f.Body, pkg) {
			found = append(found, fmt.Sprintf("%s: the function %s", name, f.Name.Name))
		}
	}
	if len(found) == 0 {
		return []string{name}
	}
	return found
}

func uses(body ast.Node, pkg string) (used bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			x, ok := s.X.(*ast.Ident)
			used = used || ok && x.Name == pkg
		}
		return !used
	})
	return used
}
