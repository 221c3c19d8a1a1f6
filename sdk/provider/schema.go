package provider

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/countersign-dev/countersign/internal/host/address"
)

const draft = "https://json-schema.org/draft/2020-12/schema"

// schemaOf returns the JSON Schema of the settings S, from its fields and tags.
func schemaOf[S any]() (string, error) {
	t := reflect.TypeFor[S]()
	schema, err := jsonschema.For[S](&jsonschema.ForOptions{TypeSchemas: scalarsIn(t, map[reflect.Type]*jsonschema.Schema{}, map[reflect.Type]bool{})})
	if err == nil {
		schema.Schema = draft
		err = decorate(schema, t)
	}
	if err != nil {
		return "", fmt.Errorf("schema of the settings %s: %w", t, err)
	}
	text, err := json.Marshal(schema)
	return string(text), err
}

// scalarsIn collects the types that describe themselves, at any depth; the tags of their fields
// are not known here.
func scalarsIn(t reflect.Type, found map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) map[reflect.Type]*jsonschema.Schema {
	t = bare(t)
	switch {
	case seen[t]:
		return found
	case isScalar(t):
		found[t] = &jsonschema.Schema{Type: "string"}
		return found
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		scalarsIn(t.Elem(), found, seen)
	}
	for _, f := range fieldsOf(t) {
		scalarsIn(f.kind, found, seen)
	}
	return found
}

// describe puts a type's own description into a property, at any depth of lists and maps.
func describe(property *jsonschema.Schema, t reflect.Type, tag reflect.StructTag) error {
	pointer := t.Kind() == reflect.Pointer
	t = bare(t)
	switch {
	case property == nil:
		return nil
	case !isScalar(t) && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		return describe(property.Items, t.Elem(), tag)
	case !isScalar(t) && t.Kind() == reflect.Map:
		return describe(property.AdditionalProperties, t.Elem(), tag)
	case !isScalar(t):
		return nil
	}
	said := jsonschema.Schema{}
	if err := json.Unmarshal([]byte(schemaOfScalar(t, tag)), &said); err != nil {
		return fmt.Errorf("the schema of %s: %w", t, err)
	}
	if pointer {
		said.Types = append([]string{"null"}, append(said.Types, said.Type)...)
		said.Types, said.Type = slices.DeleteFunc(said.Types, func(name string) bool { return name == "" }), ""
	}
	said.Description = property.Description
	*property = said
	return nil
}

// decorate adds what this package's own tags say, at any depth.
func decorate(schema *jsonschema.Schema, t reflect.Type) error {
	if schema == nil {
		return nil
	}
	t = bare(t)
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return decorate(schema.Items, t.Elem())
	case reflect.Map:
		return decorate(schema.AdditionalProperties, t.Elem())
	}
	for _, f := range fieldsOf(t) {
		property := schema.Properties[f.name]
		if property == nil {
			continue
		}
		if err := f.decorate(property); err != nil {
			return err
		}
		if f.byDefault != nil {
			schema.Required = slices.DeleteFunc(schema.Required, func(name string) bool { return name == f.name })
		}
		if err := decorate(property, f.kind); err != nil {
			return err
		}
	}
	return nil
}

func (f field) decorate(property *jsonschema.Schema) error {
	if err := describe(property, f.kind, f.tag); err != nil {
		return err
	}
	if f.byDefault != nil {
		if !f.takes(f.byDefault) {
			return fmt.Errorf("the default of %s is %s, which is not of type %s", f.name, f.byDefault, f.kind)
		}
		property.Default = f.byDefault
	}
	if err := f.defaultIsAllowed(); err != nil {
		return err
	}
	if f.enum != nil {
		of := property
		if property.Items != nil {
			of = property.Items
		}
		of.Enum = nil
		for _, value := range f.enum {
			of.Enum = append(of.Enum, value)
		}
	}
	if f.pattern != nil {
		property.Pattern = f.pattern.String()
	}
	property.Extra = map[string]any{}
	if f.secret {
		property.WriteOnly = true
		property.Extra["x-secret"] = true
	}
	return f.markAddress(property)
}

// markAddress marks the setting that is the CA's address.
func (f field) markAddress(property *jsonschema.Schema) error {
	if f.address == "" {
		return nil
	}
	if !slices.Contains(address.Forms, address.Form(f.address)) {
		return fmt.Errorf("the tag address of %s is %q: write one of %q", f.name, f.address, address.Forms)
	}
	if f.secret {
		return fmt.Errorf("%s has the tags address and secret: an address is shown", f.name)
	}
	property.Extra[address.Annotation] = f.address
	return nil
}

// takes reports whether a value is one of the field's type.
func (f field) takes(raw json.RawMessage) bool {
	var s shape
	encoded, err := json.Marshal(s.value(spot{tag: f.tag}, decoded(raw), f.kind))
	return err == nil && len(s.found) == 0 && json.Unmarshal(encoded, reflect.New(f.kind).Interface()) == nil
}

// defaultIsAllowed compares the default, a string or a list of them, with the enum.
func (f field) defaultIsAllowed() error {
	if f.enum == nil || f.byDefault == nil {
		return nil
	}
	value := decoded(f.byDefault)
	list, many := value.([]any)
	if !many {
		list = []any{value}
	}
	for _, one := range list {
		if text, isText := one.(string); isText && !slices.Contains(f.enum, text) {
			return fmt.Errorf("the default of %s is %q, which is not in its enum %s", f.name, text, strings.Join(f.enum, ","))
		}
	}
	return nil
}
