package config

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// linesOf returns the line of each setting of a file, by its path. What stands behind
// an alias has none: its origin is where the alias is.
func linesOf(content []byte) map[string]int {
	lines := map[string]int{}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil || len(document.Content) == 0 {
		return lines // readFile reports why
	}
	findLines(document.Content[0], "", lines)
	return lines
}

func findLines(node *yaml.Node, path string, lines map[string]int) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			below := join(path, key.Value)
			lines[below] = key.Line
			findLines(node.Content[i+1], below, lines)
		}
	case yaml.SequenceNode:
		for i, entry := range node.Content {
			below := join(path, nodeLabel(path, entry, i))
			lines[below] = entry.Line
			findLines(entry, below, lines)
		}
	}
}

// nodeLabel names an entry of a list as label does.
func nodeLabel(path string, entry *yaml.Node, i int) string {
	var settings map[string]any
	if entry.Kind != yaml.MappingNode || entry.Decode(&settings) != nil {
		return strconv.Itoa(i)
	}
	return label(path, settings, i)
}

// place is where the file sets what is at that path: its name and the line, such as
// countersign.yaml:7.
func (c *Config) place(path string) string {
	for at := path; at != ""; at, _ = cutLast(at) {
		if line := c.lines()[at]; line > 0 {
			return c.file + ":" + strconv.Itoa(line)
		}
	}
	return c.file
}
