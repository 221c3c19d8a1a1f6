package config

import (
	"encoding/json"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
)

// headersSetting is the one setting of Istio's variables that may be a credential.
const headersSetting = ".settings.headers"

// FromIstio returns the configuration file for the variables of Istio's agent in an environment,
// and the warnings about those without effect. Header values are references to their
// variables.
func FromIstio(environ []string) (file []byte, warnings []string, err error) {
	c := defaults()
	if err := c.readFile("", nil); err != nil {
		return nil, nil, err
	}
	given := istiocompat.Given{TrustDomain: c.TrustDomain, Chosen: istiocompat.Choice(c.chosen()), Proxy: true}
	said, err := istiocompat.Translate(maps.Collect(variables(environ)), given)
	if err != nil {
		return nil, nil, err
	}
	var wrong problems
	for _, a := range said.Assignments {
		wrong.check(c.assign(Assignment(a)))
	}
	if err := wrong.err(); err != nil {
		return nil, nil, err
	}
	values := map[string]any{}
	for _, e := range c.explain(true) {
		values[e.Setting] = e.Value
	}
	tree := map[string]any{}
	for _, a := range said.Assignments {
		value := values[a.Path]
		if strings.Contains(a.Path, ".settings.") {
			value = settingOf(a)
		}
		put(tree, strings.Split(a.Path, "."), value)
	}
	file, err = yaml.Marshal(tree)
	return file, said.Warnings, err
}

// settingOf is the value of a provider's setting.
func settingOf(a istiocompat.Assignment) (value any) {
	if err := json.Unmarshal([]byte(a.Value), &value); err != nil {
		return a.Value // text that needs no quotes
	}
	headers, ok := value.(map[string]any)
	if !ok || !strings.HasSuffix(a.Path, headersSetting) {
		return value
	}
	for name := range headers {
		headers[name] = map[string]any{"env": "CA_HEADER_" + name}
	}
	return headers
}

// put writes one setting. The lists of named entries are those of providers and outputs.
func put(tree map[string]any, path []string, value any) {
	if len(path) == 1 {
		tree[path[0]] = value
		return
	}
	if path[0] == "providers" || path[0] == "outputs" {
		put(entryNamed(tree, path[0], path[1]), path[2:], value)
		return
	}
	below, ok := tree[path[0]].(map[string]any)
	if !ok {
		below = map[string]any{}
		tree[path[0]] = below
	}
	put(below, path[1:], value)
}

func entryNamed(tree map[string]any, list, name string) map[string]any {
	entries, _ := tree[list].([]any)
	for _, entry := range entries {
		if entry := entry.(map[string]any); entry["name"] == name {
			return entry
		}
	}
	entry := map[string]any{"name": name}
	tree[list] = append(entries, entry)
	return entry
}
