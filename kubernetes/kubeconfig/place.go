package kubeconfig

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
)

var (
	unknownField = regexp.MustCompile(`unknown field (".*")$`)
	knownParent  = regexp.MustCompile(`^(preferences|(clusters|users|contexts)\.\d+(\.(cluster|user|context)(\.(exec|auth-provider))?)?)$`)
	mapKey       = regexp.MustCompile(`(?i)\.(auth-provider\.config|as-user-extra)\..*$`)
	wrongType    = regexp.MustCompile(`Go struct field \S*?\.([a-z][\w.-]*) of type`)
)

// placeOf returns the field and line that a decoder's error is about. A field that Kubernetes has
// is named by its path. Of an unknown one, or a map's key, only the parent is named: the name
// itself may be a misplaced password.
func placeOf(text []byte, err error) string {
	var document yamlnode.Node
	if yamlnode.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		return where(err)
	}
	var found string
	if match := unknownField.FindStringSubmatch(err.Error()); match != nil {
		name, _ := strconv.Unquote(match[1])
		visit(document.Content[0], "", func(parent string, key *yamlnode.Node) {
			if found == "" && key.Value == name {
				found = fmt.Sprintf(" (line %d, in %s)", key.Line, parentName(parent))
			}
		})
	}
	if match := wrongType.FindStringSubmatch(err.Error()); match != nil {
		visit(document.Content[0], "", func(parent string, key *yamlnode.Node) {
			if path := strings.TrimPrefix(parent+"."+key.Value, "."); found == "" && strings.EqualFold(path, match[1]) {
				found = fmt.Sprintf(" (line %d, %s)", key.Line, mapKey.ReplaceAllString(match[1], ".$1"))
			}
		})
	}
	if found == "" {
		return where(err)
	}
	return found
}

// parentName returns a path that consists of Kubernetes' own words.
func parentName(path string) string {
	switch {
	case path == "":
		return "the top level"
	case knownParent.MatchString(path):
		return path
	}
	return "a nested field"
}

// visit calls f for each field below n with the path of its parent.
func visit(n *yamlnode.Node, path string, f func(parent string, key *yamlnode.Node)) {
	for i, child := range n.Content {
		switch {
		case n.Kind == yamlnode.SequenceNode:
			visit(child, fmt.Sprintf("%s.%d", path, i), f)
		case n.Kind == yamlnode.MappingNode && i%2 == 0:
			f(strings.TrimPrefix(path, "."), child)
			visit(n.Content[i+1], path+"."+child.Value, f)
		}
	}
}
