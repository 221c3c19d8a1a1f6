package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// rows returns the rows of the page's tables whose first cell is a variable.
func rows(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(programs.File(t, "docs/operators.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		for _, name := range regexp.MustCompile("`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:_<name>)?)`").FindAllStringSubmatch(cells[0], -1) {
			if !strings.HasPrefix(line, "| `") {
				continue // prose
			}
			if all[name[1]] != nil {
				t.Errorf("%s is there twice", name[1])
			}
			all[name[1]] = cells
		}
	}
	return all
}

// named returns each variable that the binary's code names, which is what it can read.
func named(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{variable(ConfigFlag): true, "CA_HEADER_<name>": true}
	for _, s := range Settings() {
		all[s.Variable()] = true
	}
	shared, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := filepath.Glob("../../countersign/internal/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(shared, agent...) {
		// The proxy's package names what its child must not inherit, fates.go what Istio's agent
		// reads, and otlp what OpenTelemetry does.
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "../../countersign/internal/proxy/") || strings.HasPrefix(file, "../otlp/") || file == "../istiocompat/fates.go" {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if name, _ := strconv.Unquote(literal.Value); aVariable.MatchString(name) {
					all[name] = true
				}
			}
			return true
		})
	}
	return all
}

var aVariable = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

func TestDocsListExactlyTheVariables(t *testing.T) {
	page, code := rows(t), named(t)
	for _, name := range slices.Sorted(maps.Keys(code)) {
		if page[name] == nil {
			t.Errorf("docs/operators.md has no row for %s", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(page)) {
		if !code[name] && !strings.HasPrefix(name, "OTEL_") { // OpenTelemetry's libraries read those
			t.Errorf("docs/operators.md has a row for %s, which nothing reads", name)
		}
	}
	if len(code) < 50 {
		t.Errorf("only %d variables were found in the code", len(code))
	}
}

func TestDocsListSettingsWithDefaults(t *testing.T) {
	page, c := rows(t), defaults()
	values := map[string]any{}
	for _, e := range c.Explain() {
		values[e.Setting] = e.Value
	}
	for _, s := range Settings() {
		want := []string{"`--" + s.Flag + "`", "`" + s.Path + "`", written(values[s.Path])}
		cells := page[s.Variable()]
		if len(cells) < 4 || !slices.Equal(cells[1:4], want) {
			t.Errorf("%s has the cells %q, want %q", s.Variable(), cells, want)
		}
	}
	for path, name := range istiocompat.Renamed {
		if cells := page[path]; len(cells) < 2 || !strings.Contains(cells[1], "`"+name+"`") {
			t.Errorf("%s has the cells %q, want `%s`", path, cells, name)
		}
	}
}

// written is a default as people write it.
func written(value any) string {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.Kind() == reflect.Slice && v.Len() == 0 || v.Kind() == reflect.String && v.Len() == 0 {
		return "none"
	}
	text := strings.TrimSuffix(strings.TrimSuffix(fmt.Sprint(value), "0s"), "0m")
	if fmt.Sprint(value) == "5s" || text == "" {
		text = fmt.Sprint(value)
	}
	return "`" + text + "`"
}

func TestDocsNameEachKeyOfTheFile(t *testing.T) {
	text, err := os.ReadFile(programs.File(t, "docs/operators.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys(reflect.TypeFor[Config]()) {
		if !strings.Contains(string(text), "`"+key) {
			t.Errorf("docs/operators.md does not name %q", key)
		}
	}
}
