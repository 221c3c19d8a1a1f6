package reference

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestSecretPathsAreFoundAnywhereInSchema(t *testing.T) {
	for schema, want := range map[string]Paths{
		``: {},
		`{"properties": {"url": {"type": "string"}}}`:                                                                       {},
		`{"properties": {"pin": {"type": "integer", "writeOnly": true}, "a/b~": {"x-secret": true}}}`:                       {"/a~1b~0", "/pin"},
		`{"properties": {"login": {"properties": {"id": {}, "password": {"writeOnly": true}}}}}`:                            {"/login/password"},
		`{"properties": {"headers": {"type": ["object", "null"], "writeOnly": true}}}`:                                      {"/headers/*"},
		`{"properties": {"headers": {"additionalProperties": {"type": "string"}, "writeOnly": true}}}`:                      {"/headers/*"},
		`{"properties": {"keys": {"type": "array", "items": {"type": "string", "writeOnly": true}}}}`:                       {"/keys/*"},
		`{"properties": {"one": {"$ref": "#/$defs/Login"}}, "$defs": {"Login": {"properties": {"p": {"x-secret": true}}}}}`: {"/one/p"},
		`{"properties": {"one": {"anyOf": [{"type": "null"}, {"type": "string"}], "writeOnly": true}}}`:                     {"/one"},
		`{"allOf": [{"properties": {"p": {"writeOnly": true}}}]}`:                                                           {"/p"},
		`{"patternProperties": {"^x-": {"writeOnly": true}}}`:                                                               {"/*"},
		`{"writeOnly": true}`: {"/*"},
		`{"properties": {"secret": {"writeOnly": true, "properties": {"a": {"type": "string"}, "b": {"type": "object"}}}}}`: {"/secret/a", "/secret/b/*"},
		`{"properties": {"p": {"default": {"writeOnly": true}, "examples": [{"x-secret": true}]}}}`:                         {},
	} {
		if got, err := SecretPaths(schema); err != nil || got == nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v; want %q", schema, got, err, want)
		}
	}
}

func TestSchemaThatHidesItsSecretsIsRefused(t *testing.T) {
	deep := strings.Repeat(`{"anyOf": [`, 20_000) + "{}" + strings.Repeat("]}", 20_000)
	for _, schema := range []string{
		`{`, `{"$ref": "https://example.org/schema"}`, `{"$ref": "#/$defs/none"}`, `{"x-mine": [{"writeOnly": true}]}`, deep,
		`{"properties": {` + strings.TrimSuffix(strings.Repeat(`"@": {"writeOnly": true},`, 1), ",") + `, "x": {"future": {"a": {"x-secret": true}}}}}`,
	} {
		if got, err := SecretPaths(schema); err == nil && !slices.Contains(got, "/*") {
			t.Errorf("%.60s: got %q", schema, got)
		}
	}
}

// A schema that refers to itself has no end: what lies too deep counts as secret.
func TestRecursiveSchemaEnds(t *testing.T) {
	got, err := SecretPaths(`{"$defs": {"node": {"properties": {"password": {"writeOnly": true}, "next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"}`)
	if err != nil || !slices.Contains(got, "/next/next/password") {
		t.Fatalf("got %q, %v", got, err)
	}
	place := got.Root()
	for range 20 {
		place = place.Below("next")
	}
	if !place.Below("password").Secret() {
		t.Error("a secret far below is not hidden")
	}
	wide := strings.Repeat(`"@": {"$ref": "#/$defs/n"},`, 9)
	for i := range 9 {
		wide = strings.Replace(wide, "@", string(rune('a'+i)), 1)
	}
	if _, err := SecretPaths(`{"$defs": {"n": {"properties": {` + wide + `"p": {"writeOnly": true}}}}, "$ref": "#/$defs/n"}`); err == nil {
		t.Error("a schema that grows without bound was read to its end")
	}
}

func TestPlaceIsSecretAtAndBelowItsPath(t *testing.T) {
	paths := Paths{"/password", "/login/token", "/headers/*", "/a~1b", "/x/*", "/x/y/*"}
	for at, want := range map[string]bool{
		"password": true, "password value": true, "login": false, "login token": true, "login id": false, "headers": false, "headers x-a": true,
		"a/b": true, "a": false, "": false, "url": false, "x y": true, "x y z": true,
	} {
		place := paths.Root()
		for name := range strings.FieldsSeq(at) {
			place = place.Below(name)
		}
		if place.Secret() != want {
			t.Errorf("%q is secret: %t, want %t", at, !want, want)
		}
	}
	if root := paths.Root(); !root.Below("login").HasSecrets() || root.Below("url").HasSecrets() || (Paths{}).Root().HasSecrets() {
		t.Error("what holds secrets is not known")
	}
}

// FuzzSecretPaths holds that no schema takes long, and that a mark on a plain property is found
// or the schema refused.
func FuzzSecretPaths(f *testing.F) {
	f.Add(`{"properties": {"login": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"anyOf": [{"writeOnly": true}, {"items": {}}]}}}`)
	f.Fuzz(func(t *testing.T, schema string) {
		paths, err := SecretPaths(schema)
		if (err == nil) != (paths != nil) || len(paths) > MaxPaths {
			t.Errorf("%d paths, %v", len(paths), err)
		}
		var root map[string]any
		if err != nil || json.Unmarshal([]byte(schema), &root) != nil {
			return
		}
		properties, _ := root["properties"].(map[string]any)
		for name, property := range properties {
			property, _ := property.(map[string]any)
			if property["writeOnly"] == true && !paths.Root().Below(name).HasSecrets() {
				t.Errorf("%q is not secret", name)
			}
		}
	})
}
