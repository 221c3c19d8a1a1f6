package config

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

func TestEverySchemaChoiceIsAccepted(t *testing.T) {
	choices := choicesOf(schema(t), "")
	if len(choices) < 7 {
		t.Fatalf("only %d settings of a few words: %v", len(choices), choices)
	}
	for path, values := range choices {
		list, setting := cutLast(path)
		switch list {
		case "providers":
			path = "providers.file." + setting
		case "secrets":
			path = "secrets.other." + setting
		}
		for _, value := range values {
			c := understood(t, working, nil, Assignment{"secrets.other.name", "other", ""}, Assignment{path, value.(string), ""})
			if err := c.Complete(); err != nil && strings.Contains(err.Error(), path+" is ") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// choicesOf returns the values of each setting of a few words, by its path.
func choicesOf(s *jsonschema.Schema, path string) map[string][]any {
	if s.Items != nil {
		s = s.Items
	}
	all := map[string][]any{}
	if len(s.Enum) > 0 {
		all[path] = s.Enum
	}
	for name, below := range s.Properties {
		maps.Copy(all, choicesOf(below, join(path, name)))
	}
	return all
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestExamplesMatchSchema(t *testing.T) {
	examples := map[string]string{"working": working, "running": running}
	for _, name := range []string{"README.md", "providers/citadel/README.md", "providers/file/README.md"} {
		for _, block := range yamlBlock.FindAllStringSubmatch(readRepository(t, name), -1) {
			examples[name+": "+block[1]] = strings.ReplaceAll(block[1], "4be1…", pin)
		}
	}
	files, err := filepath.Glob(programs.File(t, "examples/*/countersign.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		examples[file] = readRepository(t, strings.TrimPrefix(file, programs.File(t, ".")))
	}
	if len(examples) < 5 {
		t.Fatalf("only %d examples are found", len(examples))
	}
	for name, text := range examples {
		if err := validate(t, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func readRepository(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(programs.File(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// schema parses the file's schema.
func schema(t *testing.T) (s *jsonschema.Schema) {
	t.Helper()
	if err := json.Unmarshal([]byte(Schema), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// validate holds a file against the schema, as an editor does.
func validate(t *testing.T, text string) error {
	t.Helper()
	resolved, err := schema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var says any
	if err := yaml.Unmarshal([]byte(text), &says); err != nil {
		t.Fatal(err)
	}
	return resolved.Validate(says)
}

func TestSchemaMatchesAgentValidation(t *testing.T) {
	for _, text := range []string{
		"trustdomain: x", "socket: {pth: x}", "providers: [{sha256: x}]", "providers: [{name: a, sha256: abc}]", "ttl: 20", "ttl: soon",
		"socket: {mode: 0600}", "log: {level: loud}", "secrets: [{name: a, kind: jwt}]", "dev: maybe", "key_type: dsa",
		"providers: [{name: a, limits: {memory: 64M}}]", "secrets: {name: a}",
	} {
		if err := validate(t, text); err == nil {
			t.Errorf("%s: no error", text)
		}
		if _, _, err := load(text, nil); err == nil {
			t.Errorf("%s: the agent takes it", text)
		}
	}
}
