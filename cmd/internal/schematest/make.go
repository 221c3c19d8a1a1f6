package schematest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
)

// What is a text in the file, and a type of its own in the struct.
const (
	duration = `^-?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`
	fileMode = `^(0o)?[0-7]{1,4}$`
	size     = `^[0-9]+(Ki|Mi|Gi)?B?$`
	rate     = `^[0-9]*[1-9][0-9]*/(s|min|h|day|week)$`
	period   = `^[0-9]+d$|` + duration
)

// schemaOf makes the schema of C, a struct. Types in patterns are texts that match; the
// comments of fields are read from the Go files. Nothing but names is required.
func schemaOf[C any](title string, patterns map[reflect.Type]string, files ...string) (*jsonschema.Schema, error) {
	texts := map[reflect.Type]*jsonschema.Schema{}
	for t, pattern := range patterns {
		texts[t] = &jsonschema.Schema{Type: "string", Pattern: pattern}
	}
	texts[reflect.TypeFor[agent.Patterns]()] = &jsonschema.Schema{Types: []string{"string", "array"}, Items: &jsonschema.Schema{Type: "string"}}
	s, err := jsonschema.For[C](&jsonschema.ForOptions{TypeSchemas: texts})
	if err != nil {
		return nil, err
	}
	comments, err := commentsIn(files)
	if err != nil {
		return nil, err
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", title
	describe(s, reflect.TypeFor[C](), comments)
	return s, nil
}

// At returns what is below s at a path, "list.setting", through lists.
func At(s *jsonschema.Schema, path string) *jsonschema.Schema {
	for key := range strings.SplitSeq(path, ".") {
		if s.Items != nil {
			s = s.Items
		}
		s = s.Properties[key]
	}
	return s
}

// Choose allows the setting at a path these values alone.
func Choose(s *jsonschema.Schema, path string, values ...string) {
	setting := At(s, path)
	for _, value := range values {
		setting.Enum = append(setting.Enum, value)
	}
}

// text returns the schema as people read it: indented, < and > as they are.
func text(s *jsonschema.Schema) ([]byte, error) {
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	out = bytes.ReplaceAll(bytes.ReplaceAll(out, []byte(`\u003c`), []byte("<")), []byte(`\u003e`), []byte(">"))
	return append(out, '\n'), nil
}

// describe gives each property its field's comment, and demands nothing but names.
func describe(s *jsonschema.Schema, t reflect.Type, comments map[string]string) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
		if s.Items != nil {
			s = s.Items
		}
	}
	if t.Kind() != reflect.Struct || s.Properties == nil {
		return
	}
	s.Required = nil
	if s.Properties["name"] != nil {
		s.Required = []string{"name"}
	}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if tag == "" || tag == "-" {
			continue
		}
		owner := t
		if len(f.Index) > 1 {
			owner = t.Field(f.Index[0]).Type
		}
		s.Properties[tag].Description = spelled(comments[owner.Name()+"."+f.Name], t)
		describe(s.Properties[tag], f.Type, comments)
	}
}

// spelled writes the names of t's fields as the file has them.
func spelled(comment string, t reflect.Type) string {
	for _, f := range reflect.VisibleFields(t) {
		if tag := f.Tag.Get("json"); tag != "" && tag != "-" {
			comment = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(comment, tag)
		}
	}
	return comment
}
