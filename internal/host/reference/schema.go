package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The limits of a schema, which is foreign.
const (
	maxDepth = 16
	maxNodes = 10_000
	// MaxPaths bounds the secret settings of a provider.
	MaxPaths = 1000
)

// SecretPaths returns the settings that a JSON Schema (draft 2020-12) marks with writeOnly or
// x-secret, sorted and never nil. It fails if the schema is malformed or hides a mark where
// this package does not look for one: then every setting has to count as secret.
func SecretPaths(schema string) (Paths, error) {
	if schema == "" {
		return Paths{}, nil
	}
	var root any
	if err := json.Unmarshal([]byte(schema), &root); err != nil {
		return nil, errors.New("the schema of the settings is not JSON")
	}
	r := reader{root: root, found: map[string]bool{}}
	if err := r.read(root, "", false, 0); err != nil {
		return nil, err
	}
	if len(r.found) > MaxPaths {
		return nil, fmt.Errorf("the schema of the settings has more than %d secret settings", MaxPaths)
	}
	paths := slices.AppendSeq(Paths{}, maps.Keys(r.found))
	slices.Sort(paths)
	return paths, nil
}

type reader struct {
	root  any
	found map[string]bool
	nodes int
}

// read reads the schema of the setting at a pointer. secret is inherited from above.
func (r *reader) read(schema any, at string, secret bool, depth int) error {
	object, isObject := schema.(map[string]any)
	if !isObject {
		if secret && schema != false {
			r.add(at)
		}
		return nil
	}
	if r.nodes++; r.nodes > maxNodes {
		return errors.New("the schema of the settings is too large")
	}
	if depth > maxDepth {
		r.add(at) // of a schema that refers to itself: what is not examined is not shown
		return nil
	}
	secret = secret || object["writeOnly"] == true || object["x-secret"] == true
	before := len(r.found)
	for _, keyword := range slices.Sorted(maps.Keys(object)) {
		if err := r.keyword(keyword, object[keyword], at, secret, depth+1); err != nil {
			return err
		}
	}
	if secret && len(r.found) == before {
		r.leaf(object, at)
	}
	return nil
}

// leaf adds a secret without a schema for what is below it.
func (r *reader) leaf(object map[string]any, at string) {
	kinds := kindsOf(object["type"])
	if slices.Contains(kinds, "object") || slices.Contains(kinds, "array") {
		r.add(at + "/*")
	}
	if len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool { return kind != "object" && kind != "array" && kind != "null" }) {
		r.add(at)
	}
}

// add marks a pointer; the settings as a whole are each of them.
func (r *reader) add(at string) {
	if at == "" {
		at = "/*"
	}
	r.found[at] = true
}

func kindsOf(kind any) (kinds []string) {
	switch kind := kind.(type) {
	case string:
		return []string{kind}
	case []any:
		for _, one := range kind {
			if name, ok := one.(string); ok {
				kinds = append(kinds, name)
			}
		}
	}
	return kinds
}

// keyword follows one keyword of a schema.
func (r *reader) keyword(name string, value any, at string, secret bool, depth int) error {
	switch name {
	case "$ref":
		return r.follow(value, at, secret, depth)
	case "properties":
		return r.each(value, func(key string) string { return at + "/" + escape.Replace(key) }, secret, depth)
	case "patternProperties":
		return r.each(value, func(string) string { return at + "/*" }, secret, depth)
	case "dependentSchemas":
		return r.each(value, func(string) string { return at }, false, depth)
	case "items", "prefixItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains":
		return r.all(value, at+"/*", secret, depth)
	case "allOf", "anyOf", "oneOf":
		return r.all(value, at, secret, depth)
	case "if", "then", "else", "not":
		return r.all(value, at, false, depth) // conditions describe no value
	case "$defs", "definitions", "default", "const", "enum", "examples":
		return nil // used by a $ref, or no schema
	}
	if marks(value, 0) {
		return fmt.Errorf("the schema of the settings has a secret below the unknown keyword %.64q", name)
	}
	return nil
}

func (r *reader) each(value any, at func(key string) string, secret bool, depth int) error {
	object, _ := value.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if err := r.read(object[key], at(key), secret, depth); err != nil {
			return err
		}
	}
	return nil
}

// all reads one schema or a list of them.
func (r *reader) all(value any, at string, secret bool, depth int) error {
	list, many := value.([]any)
	if !many {
		list = []any{value}
	}
	for _, schema := range list {
		if err := r.read(schema, at, secret, depth); err != nil {
			return err
		}
	}
	return nil
}

// follow reads the schema at a pointer into this one.
func (r *reader) follow(ref any, at string, secret bool, depth int) error {
	text, _ := ref.(string)
	pointer, local := strings.CutPrefix(text, "#")
	target := r.root
	for _, name := range split(pointer) {
		if pointer == "" {
			break
		}
		object, _ := target.(map[string]any)
		var found bool
		if target, found = object[name]; !found {
			local = false
		}
	}
	if !local {
		return errors.New("the schema of the settings refers to another one")
	}
	return r.read(target, at, secret, depth)
}

// marks reports whether anything below marks a secret.
func marks(value any, depth int) bool {
	if depth > maxDepth {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			if (name == "writeOnly" || name == "x-secret") && below == true || marks(below, depth+1) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, func(below any) bool { return marks(below, depth+1) })
	}
	return false
}
