// Package schema presents the JSON Schema of a provider's settings to people, for the provider
// commands: [Parse] returns a [Setting] for each property at any depth. A schema is untrusted:
// unknown parts are ignored, and everything is bounded.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

const (
	maxSettings = 1000
	maxDepth    = 16
)

// Setting is one that a provider takes. All texts are bounded and printable.
type Setting struct {
	Name        string `json:"name"` // its path: "key.file"; [] is any entry of a list, * any name
	Type        string `json:"type"` // in words: "string", "list of string", "string or null"
	Default     JSON   `json:"default,omitempty"`
	Required    bool   `json:"required"` // where what it is below of is set
	Secret      bool   `json:"secret"`
	Description string `json:"description,omitempty"`
	// Allowed are the only values; none: any.
	Allowed []JSON `json:"allowed,omitempty"`

	key   string // the last part of its path
	depth int
}

// JSON is text that is JSON: part of an object that is written, not a string in it.
type JSON string

// MarshalJSON implements [json.Marshaler]. Text that was cut is a string.
func (j JSON) MarshalJSON() ([]byte, error) {
	if json.Valid([]byte(j)) {
		return []byte(j), nil
	}
	return json.Marshal(string(j))
}

// node is what is read of a schema.
type node struct {
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Type        types           `json:"type"`
	Default     json.RawMessage `json:"default"`
	Enum        []any           `json:"enum"`
	Const       any             `json:"const"`
	Required    []string        `json:"required"`
	Properties  properties      `json:"properties"`
	Items       *node           `json:"items"`
	Others      *node           `json:"additionalProperties"`
	WriteOnly   bool            `json:"writeOnly"`
	XSecret     bool            `json:"x-secret"`
}

// UnmarshalJSON takes true and false for schemas, as the draft does.
func (n *node) UnmarshalJSON(text []byte) error {
	if s := string(text); s == "true" || s == "false" {
		return nil
	}
	type plain node
	return json.Unmarshal(text, (*plain)(n))
}

// types is a name or a list of them.
type types []string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *types) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*t = types{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(t))
}

// properties keep the order in which they are written.
type properties []property

type property struct {
	name string
	node *node
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *properties) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return errors.New("properties is not an object")
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		var n node
		if err := decoder.Decode(&n); err != nil {
			return err
		}
		*p = append(*p, property{key.(string), &n}) // of an object, every other token is a string
	}
	return nil
}

// Parse returns the settings in the order of the schema; an empty schema has none.
func Parse(text string) ([]Setting, error) {
	if text == "" {
		return nil, nil
	}
	var root node
	if err := json.Unmarshal([]byte(text), &root); err != nil {
		return nil, fmt.Errorf("cannot parse the schema of its settings: %s", wire.CleanText(err.Error(), ""))
	}
	if len(root.Type) > 0 && !slices.Contains(root.Type, "object") {
		return nil, fmt.Errorf("the schema of its settings describes %s instead of an object", wire.CleanText(root.Type.words(), ""))
	}
	var r reader
	r.object("", &root, 0)
	if len(r.all) > maxSettings {
		return nil, fmt.Errorf("the schema of its settings has more than %d settings", maxSettings)
	}
	return r.all, nil
}

// In a path: any entry of a list, any name.
const (
	inList = "[]"
	inMap  = ".*"
)

type reader struct{ all []Setting }

func (r *reader) object(path string, n *node, depth int) {
	for _, p := range n.Properties {
		key := wire.CleanText(p.name, "")
		s := Setting{Name: key, key: key, Required: slices.Contains(n.Required, p.name), depth: depth}
		if path != "" {
			s.Name = path + "." + key
		}
		r.add(s, p.node)
	}
}

// add completes a setting by its schema, and adds what is below it.
func (r *reader) add(s Setting, n *node) {
	if s.depth > maxDepth || len(r.all) > maxSettings {
		return
	}
	s.Type, s.Secret, s.Allowed = n.typed(), n.WriteOnly || n.XSecret, n.allowed()
	s.Description = wire.CleanText(strings.TrimSpace(n.Title+separator(n)+n.Description), "")
	if len(n.Default) > 0 && !s.Secret {
		s.Default = JSON(wire.CleanText(string(n.Default), ""))
	}
	r.all = append(r.all, s)
	r.object(s.Name, n, s.depth+1)
	if n.Items != nil && len(n.Items.Properties) > 0 {
		r.object(s.Name+inList, n.Items, s.depth+1)
	}
	if n.Others != nil && len(n.Others.Properties) > 0 {
		r.object(s.Name+inMap, n.Others, s.depth+1)
	}
}

func separator(n *node) string {
	if n.Title != "" && n.Description != "" {
		return ": "
	}
	return ""
}

// typed describes a setting's type in words.
func (n *node) typed() string {
	switch {
	case n.Items != nil && slices.Contains(n.Type, "array"):
		return "list of " + n.Items.typed()
	case len(n.Properties) == 0 && n.Others != nil && len(n.Others.Type) > 0 && slices.Contains(n.Type, "object"):
		return "map of " + n.Others.typed()
	case len(n.Type) == 0:
		return "any"
	}
	return wire.CleanText(n.Type.words(), "")
}

func (t types) words() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(t), func(name string) bool { return name == "null" && len(t) > 1 }), " or ")
}

func (n *node) allowed() []JSON {
	values := n.Enum
	if n.Items != nil && len(values) == 0 {
		values = n.Items.Enum
	}
	if n.Const != nil {
		values = []any{n.Const}
	}
	var all []JSON
	for _, v := range values[:min(len(values), 64)] {
		text, _ := json.Marshal(v) // it came from JSON
		all = append(all, JSON(wire.CleanText(string(text), "")))
	}
	return all
}
