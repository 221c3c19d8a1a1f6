package config

import (
	"bytes"
	flags "flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/program/configschema"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

var update = flags.Bool("update", false, "write docs/config.schema.json anew")

const schemaFile = "docs/config.schema.json"

func TestTheSchemaForEditorsIsThatOfTheStructs(t *testing.T) {
	want, err := configschema.Text(schema(t))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(programs.File(t, schemaFile), want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(programs.File(t, schemaFile)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/config.schema.json is out of date (%v): go test ./plugin-host/cmd/countersign/config -run Schema -update", err)
	}
}

// schema makes the schema of the file from Config and its comments.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := configschema.Of[Config]("Countersign's configuration", map[reflect.Type]string{
		reflect.TypeFor[Duration](): configschema.Duration,
		reflect.TypeFor[FileMode](): configschema.FileMode,
		reflect.TypeFor[Size]():     configschema.Size,
	}, "config.go", "token.go")
	if err != nil {
		t.Fatal(err)
	}
	for path, values := range choices {
		configschema.Choose(s, path, values...)
	}
	configschema.At(s, "providers.sha256").Pattern = `^[0-9a-fA-F]{64}$`
	return s
}

// choices are the settings of a few words.
var choices = map[string][]string{
	"key_type":                 {"ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-3072", "rsa-4096", "ed25519"},
	"secrets.key_type":         {"ecdsa-p256", "ecdsa-p384", "rsa-2048", "rsa-3072", "rsa-4096", "ed25519"},
	"secrets.kind":             {KeyPair, TrustBundle},
	"providers.identity_check": {"exact", "trust-domain", "any"},
	"workloads.verified_by":    {ByAuthority, ByJWKS, ByTokenReview},
	"log.level":                {"debug", "info", "warn", "error"},
	"log.format":               {"text", "json"},
}

func TestEveryChoiceOfTheSchemaIsOne(t *testing.T) {
	for path, values := range choices {
		list, setting := cutLast(path)
		switch list {
		case "providers":
			path = "providers.file." + setting
		case "secrets":
			path = "secrets.other." + setting
		}
		for _, value := range values {
			c := understood(t, working, nil, Assignment{"secrets.other.name", "other", ""}, Assignment{path, value, ""})
			if err := c.Complete(); err != nil && strings.Contains(err.Error(), path+" is ") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestTheExamplesAreOfTheSchema(t *testing.T) {
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

// validate holds a file against the schema in the repository, as an editor does.
func validate(t *testing.T, text string) error {
	t.Helper()
	var says any
	if err := yaml.Unmarshal([]byte(text), &says); err != nil {
		t.Fatal(err)
	}
	return configschema.Check(readRepository(t, "docs/config.schema.json"), says)
}

func TestTheSchemaRefusesWhatTheAgentRefuses(t *testing.T) {
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
