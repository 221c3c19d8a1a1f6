//go:build check

package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// go doc and an embedder's editor show no field of an internal type, so public packages declare all
// that they export.
func TestPublicPackagesExportNoInternalTypes(t *testing.T) {
	for _, file := range goFiles(t) {
		if !isPublic(path.Dir(file)) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		internal := imports(parsed, func(full string) bool { return strings.Contains(full, "/internal/") })
		for name, typ := range exportedTypes(parsed) {
			for _, shown := range selected(typ, internal, false) {
				t.Errorf("%s: %s shows the internal type %s: declare a type in the public package", file, name, shown)
			}
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

// imports returns the names that a file has for the packages that match.
func imports(file *ast.File, match func(full string) bool) map[string]bool {
	names := map[string]bool{}
	for _, spec := range file.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !match(full) {
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

// selected returns what a type shows of the packages; stable leaves out fields and functions that
// their comment calls experimental.
func selected(typ ast.Node, packages map[string]bool, stable bool) (shown []string) {
	ast.Inspect(typ, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && stable && strings.Contains(f.Doc.Text(), "Experimental.") {
			return false
		}
		if s, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok && packages[pkg.Name] {
				shown = append(shown, pkg.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return shown
}

// exportedTypes returns what a reader sees of a file's declarations, by name: signatures, declared
// types without their unexported fields, and the stated types of constants and variables.
func exportedTypes(file *ast.File) map[string]ast.Node {
	seen := map[string]ast.Node{}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() && (decl.Recv == nil || ast.IsExported(receiver(decl))) {
				seen[receiver(decl)+"."+decl.Name.Name] = &ast.Field{Doc: decl.Doc, Type: decl.Type}
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

// inDoc is how the first sentence of a package's doc names its class, for those who read no list.
var inDoc = map[string]string{
	"# stable: for embedders":            "",
	"# stable: for authors of providers": " (for authors of providers) ",
	"# experimental":                     " (experimental) ",
	"# for Countersign's own programs":   " (for Countersign's own programs) ",
}

func classOf(t *testing.T, pkg string) string {
	t.Helper()
	class, _, _ := strings.Cut(read(t, "api/"+pkg+".txt"), "\n")
	return class
}

func TestEachPublicPackageNamesItsClass(t *testing.T) {
	page := read(t, "docs/embed.md")
	for _, line := range lines(t, ".", "-f", "{{.Name}}\t{{.ImportPath}}\t{{.Doc}}", "work") {
		words := strings.SplitN(line, "\t", 3)
		pkg := strings.TrimPrefix(words[1], house+"/")
		if words[0] == "main" || !isPublic(pkg) {
			continue
		}
		word, known := inDoc[classOf(t, pkg)]
		if !known {
			t.Errorf("api/%s.txt begins with no class: run make generate NAME=api", pkg)
		}
		for class, other := range inDoc {
			if other != "" && strings.Contains(words[2], other) != (other == word) {
				t.Errorf("the doc of %s and %q do not agree: %s", pkg, class, words[2])
			}
		}
		if !strings.Contains(page, "`"+pkg+"`") {
			t.Errorf("docs/embed.md does not list %s", pkg)
		}
	}
}

// What is promised must not depend on what is not.
func TestStablePackagesShowStableTypes(t *testing.T) {
	for _, file := range goFiles(t) {
		dir := path.Dir(file)
		if !isPublic(dir) || !strings.HasPrefix(classOf(t, dir), "# stable") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		unstable := imports(parsed, func(full string) bool {
			pkg, ours := strings.CutPrefix(full, house+"/")
			return ours && isPublic(pkg) && !strings.HasPrefix(classOf(t, pkg), "# stable")
		})
		for name, typ := range exportedTypes(parsed) {
			for _, shown := range selected(typ, unstable, true) {
				t.Errorf("%s: %s shows %s, of which nothing is promised", file, name, shown)
			}
		}
	}
}

// A client could make a metric with any number of series.
func TestNoMetricLabelIsTextOfClient(t *testing.T) {
	label := regexp.MustCompile(`WithLabelValues\([^)]*\.Client\.`)
	for _, file := range goFiles(t) {
		if found := label.FindString(read(t, file)); found != "" {
			t.Errorf("%s has %s: a client chose that text", file, found)
		}
	}
}
