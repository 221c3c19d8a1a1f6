//go:build check

package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// go doc and an embedder's editor show nothing of an internal type: what a public package exports
// is declared in public packages.
func TestPublicPackagesExportNoInternalTypes(t *testing.T) {
	for _, file := range goFiles(t) {
		if !isPublic(path.Dir(file)) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		internal := internalImports(parsed)
		for name, typ := range exportedTypes(parsed) {
			ast.Inspect(typ, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := s.X.(*ast.Ident); ok && internal[pkg.Name] {
						t.Errorf("%s: %s shows the internal type %s.%s: declare a type in the public package", file, name, pkg.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// isPublic reports whether api/ has a package, as tools/api decides.
func isPublic(dir string) bool {
	wing, _, _ := strings.Cut(dir, "/")
	switch {
	case strings.Contains(dir+"/", "/internal/"), strings.Contains(dir, "/testdata"), strings.Contains(dir, "/cmd/"), dir == "ra/istioca":
		return false
	}
	return wing == "sdk" || wing == "plugin-host" || wing == "ra" || wing == "discovery"
}

func internalImports(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, spec := range file.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !strings.Contains(full, "/internal/") {
			continue
		}
		name := path.Base(full)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = true
	}
	return names
}

// exportedTypes returns what a reader sees of a file's declarations, by name: signatures, declared
// types without their unexported fields, and the stated types of constants and variables.
func exportedTypes(file *ast.File) map[string]ast.Node {
	seen := map[string]ast.Node{}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() && (decl.Recv == nil || ast.IsExported(receiver(decl))) {
				seen[receiver(decl)+"."+decl.Name.Name] = decl.Type
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				declared(spec, seen)
			}
		}
	}
	return seen
}

func declared(spec ast.Spec, seen map[string]ast.Node) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			seen[spec.Name.Name] = visible(spec.Type)
		}
	case *ast.ValueSpec:
		if spec.Type != nil && spec.Names[0].IsExported() {
			seen[spec.Names[0].Name] = spec.Type
		}
	}
}

// visible is a type without its unexported fields.
func visible(typ ast.Expr) ast.Node {
	structure, ok := typ.(*ast.StructType)
	if !ok {
		return typ
	}
	fields := &ast.FieldList{}
	for _, f := range structure.Fields.List {
		if len(f.Names) == 0 || f.Names[0].IsExported() {
			fields.List = append(fields.List, f)
		}
	}
	return fields
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}
