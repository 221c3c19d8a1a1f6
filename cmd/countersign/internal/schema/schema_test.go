package schema

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

func TestNestedSettingsAreRead(t *testing.T) {
	got, err := Parse(`{"type": "object", "required": ["z"], "properties": {
		"z": {"type": "string", "title": "Zone", "description": "where", "enum": ["a", "b"]},
		"key": {"type": ["null", "object"], "properties": {"file": {"type": "string", "writeOnly": true, "default": "hidden"}}},
		"list": {"type": "array", "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": ["integer", "string"]}}}},
		"map": {"type": "object", "additionalProperties": {"type": "boolean"}},
		"rows": {"type": "object", "additionalProperties": {"properties": {"x": true}}},
		"pin": {"const": 7, "x-secret": true}, "any": {}, "never": false}, "additionalProperties": false}`)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteTable(&out, got); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		`z string - yes Zone: where ("a", "b")`, "key object -", "key.file string - yes", "list " + "list of object -",
		"list[].n integer or string - yes", "map " + "map of boolean -", "rows.*.x any -", "pin any - yes (7)", "never any -",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), row) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
	if strings.Contains(out.String(), "hidden") {
		t.Error("the default of a secret was shown")
	}
}

func TestHostileSchemaIsRefusedOrBounded(t *testing.T) {
	for text, want := range map[string]string{
		`{"properties": 7}`:        "cannot parse",
		`{"properties": {"a": 7}}`: "cannot parse",
		`{"type": "array"}`:        "describes array instead of an object",
		`{"type": "obj\u001bect"}`: `describes obj\x1bect`,
		`[]`:                       "cannot parse",
		"{\"properties\": {" + strings.Repeat(`"a": {},`, 2000) + `"b": {}}}`: "more than 1000 settings",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
	deep := strings.Repeat(`{"properties": {"a": `, 100) + "{}" + strings.Repeat("}}", 100)
	if got, err := Parse(deep); err != nil || len(got) > maxDepth+1 {
		t.Errorf("%d settings, %v", len(got), err)
	}
}

func TestForeignTextIsNotMarkup(t *testing.T) {
	settings, err := Parse(`{"properties": {"a|b` + "`" + `c": {"description": "<img src=x> [click](http://x) *b* | next\nline", "type": "<b>"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := WriteMarkdown(&page, wire.Metadata{Name: "acme", Version: "1<b>"}, settings); err != nil {
		t.Fatal(err)
	}
	const want = "| `a\\|b'c` | &lt;b> |  |  |  | &lt;img src=x> \\[click](http://x) \\*b\\* \\| next\\\\nline |\n"
	if !strings.HasSuffix(page.String(), want) || strings.Contains(page.String(), "<b>") {
		t.Errorf("page:\n%s\nwant at its end\n%s", page.String(), want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"properties": {"a": {"items": {"properties": {"b": true}}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := Parse(text)
		if err != nil && len(settings) > 0 {
			t.Error("settings beside an error")
		}
		for _, s := range settings {
			if strings.ContainsAny(s.Name+s.Description+s.Type+string(s.Default), "\x00\x1b\n") {
				t.Errorf("%+v", s)
			}
		}
	})
}
