package config

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// settings are the paths of all settings of a type; [] is any entry of a list.
func settings(t reflect.Type, path string) (all []string) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()) {
		return []string{path}
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag := f.Tag.Get("json"); tag != "" {
			all = append(all, settings(f.Type, strings.TrimPrefix(path+"."+tag, "."))...)
		}
	}
	return all
}

// shared are settings that the agent has, too, and its page explains.
var shared = regexp.MustCompile(`^providers\[\]\.`)

func TestDocsListExactlyTheSettings(t *testing.T) {
	page, err := os.ReadFile(programs.File(t, "docs/discovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, path := range settings(reflect.TypeFor[Config](), "") {
		if !shared.MatchString(path) {
			want = append(want, path)
		}
	}
	var got []string
	_, rows, _ := strings.Cut(string(page), "\n## The settings\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	for line := range strings.Lines(rows) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") {
			for _, m := range regexp.MustCompile("`([a-z0-9_.\\[\\]]+)`").FindAllStringSubmatch(cells[0], -1) {
				got = append(got, m[1])
			}
		}
	}
	for _, path := range want {
		if !slices.Contains(got, path) {
			t.Errorf("docs/discovery.md has no row for %s", path)
		}
	}
	for _, path := range got {
		if !slices.Contains(want, path) && path != "providers" {
			t.Errorf("docs/discovery.md has a row for %s, which is no setting", path)
		}
	}
}

func TestDocsExamplesAreValid(t *testing.T) {
	page, err := os.ReadFile(programs.File(t, "docs/discovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("only %d examples", len(blocks))
	}
	for _, block := range blocks {
		if strings.HasPrefix(block[1], "# kustomization.yaml") {
			continue // control-plane/kubernetes builds it
		}
		text := strings.ReplaceAll(block[1], "4be1…", pin)
		if _, err := Parse("example.yaml", []byte(text)); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		if err := validate(t, text); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// validate holds a file against the schema, as an editor does.
func validate(t *testing.T, text string) error {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(Schema), &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var says any
	if err := yaml.Unmarshal([]byte(text), &says); err != nil {
		t.Fatal(err)
	}
	return resolved.Validate(says)
}

func TestSchemaMatchesServiceValidation(t *testing.T) {
	if err := validate(t, working); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"lisen: {}", "listen: {tsl: x}", "times: {stream: 5}", "log: {level: loud}", "authenticators: [{kind: password}]", "limits: {streams: many}", "trust_domains: [{own_ca: true}]"} {
		if validate(t, text) == nil {
			t.Errorf("%s is taken", text)
		}
		if _, err := Parse("c.yaml", []byte(spoiled(text))); err == nil {
			t.Errorf("the service takes %s", text)
		}
	}
}
