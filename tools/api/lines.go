package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// lines returns the exported declarations of a package, sorted:
//
//	const Denied Reason = 2
//	func ActionFor(err error) Action
//	method (*Error) Error() string
//	type Error struct
//	type Error struct, Message string
func lines(pkg *types.Package) []string {
	w := &writer{pkg: pkg}
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			w.object(obj)
		}
	}
	slices.Sort(w.lines)
	return w.lines
}

type writer struct {
	pkg   *types.Package
	lines []string
}

func (w *writer) add(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// text writes a type; those of other packages with their package's name.
func (w *writer) text(t types.Type) string { return types.TypeString(t, w.qualifier) }

func (w *writer) qualifier(of *types.Package) string {
	if of == w.pkg {
		return ""
	}
	return of.Name()
}

// signature writes a function's type without the word func.
func (w *writer) signature(t types.Type) string { return strings.TrimPrefix(w.text(t), "func") }

func (w *writer) object(obj types.Object) {
	switch obj := obj.(type) {
	case *types.Const:
		w.add("const %s %s = %s", obj.Name(), w.text(obj.Type()), obj.Val().ExactString())
	case *types.Var:
		w.add("var %s %s", obj.Name(), w.text(obj.Type()))
	case *types.Func:
		w.add("func %s%s", obj.Name(), w.signature(obj.Type()))
	case *types.TypeName:
		w.typeName(obj)
	}
}

func (w *writer) typeName(obj *types.TypeName) {
	if alias, ok := obj.Type().(*types.Alias); ok && obj.IsAlias() {
		w.add("type %s = %s", obj.Name(), w.text(alias.Rhs()))
		if named, ok := types.Unalias(alias).(*types.Named); ok && isInternal(named.Obj().Pkg()) {
			w.declared(obj.Name(), named) // nowhere else to be read
		}
		return
	}
	w.declared(w.text(obj.Type()), obj.Type()) // with its type parameters
}

// isInternal tells whether a package is written down nowhere.
func isInternal(pkg *types.Package) bool {
	return pkg != nil && strings.Contains(pkg.Path(), "/internal/")
}

func (w *writer) declared(name string, t types.Type) {
	switch under := t.Underlying().(type) {
	case *types.Struct:
		w.add("type %s struct", name)
		w.fields(name, under)
	case *types.Interface:
		w.add("type %s interface", name)
		w.interfaceMethods(name, under)
		return
	default:
		w.add("type %s %s", name, w.text(under))
	}
	w.methods(name, t)
}

func (w *writer) fields(name string, s *types.Struct) {
	for i := range s.NumFields() {
		f := s.Field(i)
		switch {
		case !f.Exported():
		case f.Embedded():
			w.add("type %s struct, embedded %s%s", name, w.text(f.Type()), tag(s.Tag(i)))
		default:
			w.add("type %s struct, %s %s%s", name, f.Name(), w.text(f.Type()), tag(s.Tag(i)))
		}
	}
}

// tag is part of the API: it names what is written and read.
func tag(tag string) string {
	if tag == "" {
		return ""
	}
	return " `" + tag + "`"
}

func (w *writer) interfaceMethods(name string, i *types.Interface) {
	closed := false
	for m := range i.Methods() {
		if !m.Exported() {
			closed = true // nobody else can have it
			continue
		}
		w.add("type %s interface, %s%s", name, m.Name(), w.signature(m.Type()))
	}
	if closed {
		w.add("type %s interface, unexported methods", name)
	}
	if i.NumEmbeddeds() > 0 && !i.IsMethodSet() {
		w.add("type %s interface, %s", name, w.text(i))
	}
}

// methods writes the type's own and those of what it embeds.
func (w *writer) methods(name string, t types.Type) {
	byValue := types.NewMethodSet(t)
	for m := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := "*" + name
		if byValue.Lookup(w.pkg, m.Obj().Name()) != nil {
			receiver = name
		}
		w.add("method (%s) %s%s", receiver, m.Obj().Name(), w.signature(m.Type()))
	}
}
