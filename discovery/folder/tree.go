package folder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/internal/text"
)

const (
	maxDepth     = 100
	maxDocuments = 10_000
	// A file of maxFile bytes without aliases stays below it.
	maxWeight = 2 * maxFile
)

// trees returns the documents of a YAML or JSON file as encoding/json would. An alias
// counts as its target each time it occurs.
func trees(content []byte) ([]any, error) {
	decoder, growth := yaml.NewDecoder(bytes.NewReader(content)), grower{}
	var all []any
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, faultf("neither YAML nor JSON: %s", text.Clean(err.Error()))
		}
		if len(all) == maxDocuments {
			return nil, faultf("more than %d documents", maxDocuments)
		}
		tree, err := growth.value(&node, 0)
		if err != nil {
			return nil, at(document(len(all)), err)
		}
		all = append(all, tree)
	}
}

// document names the i-th document of a file, counting from 1.
func document(i int) string { return fmt.Sprintf("document %d", i+1) }

// grower converts nodes to values and limits their total size.
type grower struct{ weight int }

func (g *grower) value(node *yaml.Node, depth int) (any, error) {
	g.weight += 1 + len(node.Value)
	if depth > maxDepth {
		return nil, faultf("nested more than %d levels deep", maxDepth)
	}
	if g.weight > maxWeight {
		return nil, faultf("aliases expand it to more than %d bytes", maxWeight)
	}
	switch node.Kind {
	case yaml.DocumentNode:
		return g.value(node.Content[0], depth)
	case yaml.AliasNode:
		return g.value(node.Alias, depth+1)
	case yaml.SequenceNode:
		return g.list(node, depth+1)
	case yaml.MappingNode:
		return g.entries(node, depth+1)
	}
	return scalar(node)
}

func (g *grower) list(node *yaml.Node, depth int) (any, error) {
	if node.ShortTag() != "!!seq" {
		return nil, unknownTag(node)
	}
	list := make([]any, len(node.Content))
	for i, element := range node.Content {
		value, err := g.value(element, depth)
		if err != nil {
			return nil, at(index(i), err)
		}
		list[i] = value
	}
	return list, nil
}

func (g *grower) entries(node *yaml.Node, depth int) (any, error) {
	if node.ShortTag() != "!!map" {
		return nil, unknownTag(node)
	}
	entries := make(map[string]any, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		g.weight += len(key.Value)
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return nil, faultf("line %d: a key must be a string; merge keys (<<) are not supported", key.Line)
		}
		if _, err := scalar(key); err != nil {
			return nil, err
		}
		if _, twice := entries[key.Value]; twice {
			return nil, at(key.Value, faultf("line %d: duplicate key", key.Line))
		}
		value, err := g.value(node.Content[i+1], depth)
		if err != nil {
			return nil, at(key.Value, err)
		}
		entries[key.Value] = value
	}
	return entries, nil
}

func scalar(node *yaml.Node) (any, error) {
	switch node.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!str", "!!timestamp", "!!binary": // strings in protobuf's JSON
		return node.Value, nil
	case "!!bool", "!!int", "!!float":
		var value any
		if err := node.Decode(&value); err != nil {
			return nil, faultf("line %d: %s", node.Line, text.Clean(err.Error()))
		}
		return number(value), nil
	}
	return nil, unknownTag(node)
}

func unknownTag(node *yaml.Node) error {
	return faultf("line %d: unsupported tag %s", node.Line, text.Clean(node.Tag))
}

// number returns the value; numbers JSON lacks are written as in protobuf's JSON.
func number(value any) any {
	f, ok := value.(float64)
	switch {
	case ok && math.IsNaN(f):
		return "NaN"
	case ok && math.IsInf(f, 1):
		return "Infinity"
	case ok && math.IsInf(f, -1):
		return "-Infinity"
	}
	return value
}
