//go:build check

package house_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

var writeChart = flag.Bool("chart", false, "write the chart's values.schema.json")

// programSchemas are the schemas of the parts' configuration files.
var programSchemas = map[string]string{
	"discovery": "cmd/countersign-discovery/internal/config/schema.json",
	"ra":        "cmd/countersign-ra/internal/config/schema.json",
	"agent":     "cmd/internal/config/schema.json",
	"sidecar":   "cmd/internal/config/schema.json",
}

type schema = map[string]any

// Helm checks the values, the programs' configurations among them, before it installs anything. One
// wrong value is one line, which it is not where schemas are combined (allOf, a $ref beside
// properties): so what the parts have in common is written out for each.
func TestChartSchemaIsMadeOfPrograms(t *testing.T) {
	whole := readSchema(t, "deploy/helm/values.schema.json")
	defs, properties := whole["$defs"].(schema), whole["properties"].(schema)
	common, workload := defs["part"].(schema), defs["workload"].(schema)
	delete(defs, "part")
	delete(defs, "workload")
	for part, file := range programSchemas {
		own := properties[part].(schema)
		name := "config-" + filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file)))) // of the program
		config := readSchema(t, file)
		delete(config, "$schema")
		delete(config, "title")
		withoutDescriptions(config)
		overlay(own, common)
		if part != "sidecar" {
			overlay(own, workload)
		}
		below := own["properties"].(schema)
		if more, ok := below["config"].(schema); ok { // what only the chart checks
			overlay(config, more)
		}
		defs[name] = config
		below["config"] = schema{"$ref": "#/$defs/" + name}
	}
	want, err := json.MarshalIndent(whole, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	file := filepath.Join(root, "deploy/helm/countersign/values.schema.json")
	if *writeChart {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(want) {
		t.Errorf("deploy/helm/countersign/values.schema.json is out of date (%v): make generate NAME=docs", err)
	}
}

func readSchema(t *testing.T, file string) (s schema) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// withoutDescriptions leaves out what Helm never shows; a release's record has the whole chart.
func withoutDescriptions(s schema) {
	if _, ok := s["description"].(string); ok {
		delete(s, "description")
	}
	for _, value := range s {
		if below, ok := value.(schema); ok {
			withoutDescriptions(below)
		}
	}
}

// overlay adds to s what more has for it.
func overlay(s, more schema) {
	for key, value := range more {
		below, ok := value.(schema)
		own, there := s[key].(schema)
		switch {
		case key == "required" && s[key] != nil:
			s[key] = append(append([]any{}, s[key].([]any)...), value.([]any)...)
		case ok && there:
			overlay(own, below)
		default:
			s[key] = clone(value)
		}
	}
}

func clone(value any) any {
	below, ok := value.(schema)
	if !ok {
		return value
	}
	all := maps.Clone(below)
	for key := range all {
		all[key] = clone(all[key])
	}
	return all
}
