package config

import (
	"bytes"
	"encoding/json"
	flags "flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

var update = flags.Bool("update", false, "write schema.json anew")

const (
	repository = "../../../../.."
	agentFiles = repository + "/plugin-host/cmd/countersign/config/"
)

func TestTheSchemaIsThatOfTheStructs(t *testing.T) {
	want, err := json.MarshalIndent(schemaOf(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(bytes.ReplaceAll(bytes.ReplaceAll(want, []byte(`\u003c`), []byte("<")), []byte(`\u003e`), []byte(">")), '\n')
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if Schema != string(want) {
		t.Error("schema.json is out of date: go test . -run Schema -update")
	}
}

// schemaOf makes the schema of the types and their comments.
func schemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text := func(pattern string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Pattern: pattern} }
	s, err := jsonschema.For[Config](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[agent.Duration](): text(`^-?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$`),
		reflect.TypeFor[agent.FileMode](): text(`^(0o)?[0-7]{1,4}$`),
		reflect.TypeFor[agent.Size]():     text(`^[0-9]+(Ki|Mi|Gi)?B?$`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "The configuration of countersign-discovery"
	describe(s, reflect.TypeFor[Config](), comments(t))
	s.Properties["authenticators"].Items.Properties["kind"].Enum = []any{ByCertificate, ByJWT, ByKubernetes}
	s.Properties["log"].Properties["level"].Enum = []any{"debug", "info", "warn", "error"}
	s.Properties["log"].Properties["format"].Enum = []any{"text", "json"}
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
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		if tag == "" {
			continue
		}
		owner := t
		if len(f.Index) > 1 {
			owner = t.Field(f.Index[0]).Type
		}
		s.Properties[tag].Description = spelled(comments[owner.Name()+"."+f.Name], t)
		describe(s.Properties[tag], f.Type, comments)
	}
}

// spelled writes the fields' names as the file has them.
func spelled(comment string, t reflect.Type) string {
	for _, f := range reflect.VisibleFields(t) {
		if tag := f.Tag.Get("json"); tag != "" {
			comment = regexp.MustCompile(`\b`+f.Name+`\b`).ReplaceAllString(comment, tag)
		}
	}
	return comment
}

// comments returns the fields' comments by Type.Field, of the agent's types, too.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range []string{agentFiles + "config.go", agentFiles + "token.go", "config.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				note(all, spec.Name.Name, fields)
			}
			return false
		})
	}
	return all
}

func note(all map[string]string, owner string, fields *ast.StructType) {
	last := ""
	for _, f := range fields.Fields.List {
		text := strings.Join(strings.Fields(f.Doc.Text()+f.Comment.Text()), " ")
		for _, name := range f.Names {
			if text == "" && strings.Contains(last, name.Name) {
				text = last
			}
			all[owner+"."+name.Name] = text
		}
		last = text
	}
}

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

func TestTheOperatorsPageHasEachSettingAndNoOther(t *testing.T) {
	page, err := os.ReadFile(repository + "/docs/discovery.md")
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

func TestTheExamplesOfThePageAreGood(t *testing.T) {
	page, err := os.ReadFile(repository + "/docs/discovery.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("only %d examples", len(blocks))
	}
	for _, block := range blocks {
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
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(Schema), &s); err != nil {
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

func TestTheSchemaRefusesWhatTheServiceRefuses(t *testing.T) {
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
