package config

import (
	"bytes"
	"encoding/json"
	flags "flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"
)

var update = flags.Bool("update", false, "write docs/config.schema.json anew")

const (
	repository = "../../../.."
	schemaFile = repository + "/docs/config.schema.json"
)

func TestTheSchemaForEditorsIsThatOfTheStructs(t *testing.T) {
	want, err := json.MarshalIndent(schema(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(regexp.MustCompile(`\\u003[ce]`).ReplaceAllFunc(want, func(escaped []byte) []byte {
		return map[string][]byte{`\u003c`: {'<'}, `\u003e`: {'>'}}[string(escaped)] // for people
	}), '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(schemaFile); err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/config.schema.json is out of date (%v): go test ./plugin-host/cmd/countersign/config -run Schema -update", err)
	}
}

// schema makes the schema of the file from Config and its comments.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text := func(pattern string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: pattern} }
	s, err := jsonschema.For[Config](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Duration](): text(`^-?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`),
		reflect.TypeFor[FileMode](): text(`^(0o)?[0-7]{1,4}$`),
		reflect.TypeFor[Size]():     text(`^[0-9]+(Ki|Mi|Gi)?B?$`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "Countersign's configuration"
	describe(s, reflect.TypeFor[Config](), comments(t))
	for path, values := range choices {
		property := at(s, path)
		for _, value := range values {
			property.Enum = append(property.Enum, value)
		}
	}
	at(s, "providers.sha256").Pattern = `^[0-9a-fA-F]{64}$`
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

// at returns what is below s, through lists.
func at(s *jsonschema.Schema, path string) *jsonschema.Schema {
	for key := range strings.SplitSeq(path, ".") {
		if s.Items != nil {
			s = s.Items
		}
		s = s.Properties[key]
	}
	return s
}

// describe gives each property its field's comment, and demands nothing but names.
func describe(s *jsonschema.Schema, t reflect.Type, comments map[string]string) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
		if s.Items != nil {
			s = s.Items
		}
	}
	if t.Kind() != reflect.Struct || s.Properties == nil {
		return
	}
	s.Required = nil
	if s.Properties["name"] != nil {
		s.Required = []string{"name"}
	}
	var spelling []string // of the fields, as the file has them
	for _, f := range reflect.VisibleFields(t) {
		if tag := f.Tag.Get("json"); tag != "" {
			spelling = append(spelling, f.Name, tag)
		}
	}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if tag == "" {
			continue
		}
		owner := t
		if len(f.Index) > 1 {
			owner = t.Field(f.Index[0]).Type
		}
		s.Properties[tag].Description = spelled(comments[owner.Name()+"."+f.Name], spelling)
		describe(s.Properties[tag], f.Type, comments)
	}
}

// spelled writes the fields' names as the file has them.
func spelled(comment string, spelling []string) string {
	for i := 0; i < len(spelling); i += 2 {
		comment = regexp.MustCompile(`\b`+spelling[i]+`\b`).ReplaceAllString(comment, spelling[i+1])
	}
	return comment
}

// comments returns the fields' comments by Type.Field. One that stands before
// several fields and names them is each one's.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{"config.go", "token.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, noting(all))
	}
	return all
}

// noting notes the comments of each struct.
func noting(all map[string]string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return false
		}
		last := ""
		for _, f := range fields.Fields.List {
			text := strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
			for _, name := range f.Names {
				if text == "" && strings.Contains(last, name.Name) {
					text = last
				}
				all[spec.Name.Name+"."+name.Name] = text
			}
			last = text
		}
		return false
	}
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
	files, err := filepath.Glob(repository + "/examples/*/countersign.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		examples[file] = readRepository(t, strings.TrimPrefix(file, repository))
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
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// validate holds a file against the schema in the repository, as an editor does.
func validate(t *testing.T, text string) error {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(readRepository(t, "docs/config.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	return resolved.Validate(tree)
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
