package provider

import (
	"cmp"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
)

// field is one setting as described by its tags.
type field struct {
	name      string // in JSON
	kind      reflect.Type
	about     string
	required  bool
	byDefault json.RawMessage // nil: none
	enum      []string        // nil: any value
	secret    bool
	pattern   *regexp.Regexp // nil: any text
	address   string         // the form of the CA's address; empty: it is none
	tag       reflect.StructTag
}

// fieldsOf returns the settings of a struct in order, or nil for any other type and for one
// with its own UnmarshalJSON.
func fieldsOf(t reflect.Type) []field {
	if t.Kind() != reflect.Struct || readsItself(t) {
		return nil
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if f.IsExported() && tag != "-" && !f.Anonymous {
			fields = append(fields, newField(f, tag))
		}
	}
	return fields
}

func newField(f reflect.StructField, tag string) field {
	name, options, _ := strings.Cut(tag, ",")
	name = cmp.Or(name, f.Name)
	out := field{name: name, kind: f.Type, about: f.Tag.Get("jsonschema"), secret: f.Tag.Get("secret") == "true", address: f.Tag.Get("address"), tag: f.Tag}
	if text, ok := f.Tag.Lookup("default"); ok {
		out.byDefault = defaultOf(f.Type, text)
	}
	if text, ok := f.Tag.Lookup("enum"); ok {
		out.enum = strings.Split(text, ",")
	}
	if text, ok := f.Tag.Lookup("pattern"); ok {
		out.pattern = regexp.MustCompile(text)
	}
	out.required = out.byDefault == nil && !strings.Contains(options, "omit")
	return out
}

// defaultOf returns a tag as JSON if it fits the type, else as a JSON string.
func defaultOf(t reflect.Type, text string) json.RawMessage {
	if !isScalar(t) && json.Unmarshal([]byte(text), reflect.New(t).Interface()) == nil {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a string always is JSON
	return quoted
}

// readsItself reports whether a type has its own UnmarshalJSON or UnmarshalText.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) || readsText(t)
}

// bare returns what a pointer points to.
func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// namesOf returns the names of the fields in order.
func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}
