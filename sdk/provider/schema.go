package provider

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

const draft = "https://json-schema.org/draft/2020-12/schema"

// schemaOf returns the JSON Schema of the settings S, from its fields and tags.
func schemaOf[S any]() (string, error) {
	t := reflect.TypeFor[S]()
	schema, err := jsonschema.For[S](nil)
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
	if f.byDefault != nil {
		if err := json.Unmarshal(f.byDefault, reflect.New(f.kind).Interface()); err != nil {
			return fmt.Errorf("the default of %s is %s, which is not of type %s", f.name, f.byDefault, f.kind)
		}
		property.Default = f.byDefault
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
	if f.secret {
		property.WriteOnly = true
		property.Extra = map[string]any{"x-secret": true}
	}
	return nil
}
