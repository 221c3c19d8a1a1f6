package schematest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// commentsIn returns the fields' comments by Type.Field. One that stands before
// several fields and names them is each one's.
func commentsIn(files []string) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				note(all, spec.Name.Name, fields)
			}
			return false
		})
	}
	return all, nil
}

// note notes the comments of one struct.
func note(all map[string]string, owner string, fields *ast.StructType) {
	last := ""
	for _, f := range fields.Fields.List {
		text := strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
		for _, name := range f.Names {
			if text == "" && strings.Contains(last, name.Name) {
				text = last
			}
			all[owner+"."+name.Name] = text
		}
		last = text
	}
}
