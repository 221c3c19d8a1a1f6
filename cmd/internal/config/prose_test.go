package config_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	// inline matches a setting that has settings below it, between backticks.
	inline = regexp.MustCompile("`([a-z_]+): ([\\[{][^`]*)`")
)

// What a sentence of the documents has in YAML is what a program reads.
func TestYAMLInProseIsValid(t *testing.T) {
	all, checked := schemas(t), 0
	for _, pattern := range []string{"README.md", "docs/*.md", "providers/*/README.md"} {
		pages, err := filepath.Glob(programs.File(t, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range inline.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
				if known, err := valid(all, m[1], m[2]); err != nil {
					t.Errorf("%s: %s: %v", filepath.Base(page), m[0], err)
				} else if known {
					checked++
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d are found", checked)
	}
	if known, err := valid(all, "secrets", "{ROOTCA: {providers: [old, new]}}"); !known || err == nil {
		t.Error("a map in place of a list is valid")
	}
}

// valid returns whether a program has that setting, and why none takes the value. One with an
// ellipsis, or with names in place of settings, is not compared.
func valid(all []*jsonschema.Schema, name, value string) (known bool, err error) {
	var read any
	if err := yaml.Unmarshal([]byte(value), &read); err != nil {
		return true, err
	}
	if strings.Contains(value, "…") || strings.Contains(value, "...") || onlyNames(read) {
		return false, nil
	}
	for _, s := range called(all, name) {
		resolved, wrong := s.CloneSchemas().Resolve(nil)
		if wrong == nil {
			wrong = resolved.Validate(read)
		}
		if wrong == nil {
			return true, nil
		}
		known, err = true, wrong
	}
	return known, err
}

// onlyNames reports whether a value is as {a, b}, which lists settings.
func onlyNames(value any) bool {
	object, ok := value.(map[string]any)
	for _, below := range object {
		ok = ok && below == nil
	}
	return ok && len(object) > 0
}

// called returns the schemas of the settings with a name, at any depth.
func called(all []*jsonschema.Schema, name string) (found []*jsonschema.Schema) {
	for _, s := range all {
		for s.Items != nil {
			s = s.Items
		}
		if at := s.Properties[name]; at != nil {
			found = append(found, at)
		}
		found = append(found, called(slices.Collect(maps.Values(s.Properties)), name)...)
	}
	return found
}
