package schema

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

const kitSchema = `{"type": "object", "required": ["url", "pin", "ca", "peers", "tls"], "properties": {
	"url": {"type": "string", "description": "where: the #1 CA"},
	"tries": {"type": "integer", "default": 3, "enum": [1, 3]},
	"no": {"type": "string", "default": "a: b"},
	"pin": {"type": "string", "writeOnly": true, "description": "the PIN"},
	"token": {"type": "string", "writeOnly": true, "default": "hidden"},
	"key": {"type": "object", "required": ["file"], "properties": {"file": {"type": "string"}, "a.b": {"type": "string", "default": "c"}}},
	"ca": {"type": "object", "required": ["id"], "properties": {
		"id": {"type": "string"}, "login": {"type": "object", "writeOnly": true, "properties": {"name": {"type": "string"}, "codes": {"type": "array", "items": {"type": "string"}}}}}},
	"peers": {"type": "array", "items": {"type": "object", "required": ["host"], "properties": {"host": {"type": "string"}, "port": {"type": "integer", "default": 443}}}},
	"pools": {"type": "object", "additionalProperties": {"type": "object", "properties": {"size": {"type": "integer"}}}},
	"tls": {"type": "object", "properties": {"name": {"type": "string"}}}}}`

const kitSettings = `settings:
  # (string) where: the #1 CA
  url: FILL-IN
  # (integer) (1, 3)
  # tries: 3
  # (string)
  # "no": "a: b"
  # (string, secret) the PIN
  pin: {file: FILL-IN}
  # (string, secret)
  # token: {file: FILL-IN}
  # (object)
  # key:
    # (string, required)
    # file: FILL-IN
    # (string)
    # "a.b": "c"
  # (object)
  ca:
    # (string)
    id: FILL-IN
    # (object, secret)
    # login:
      # (string, secret)
      # name: {file: FILL-IN}
      # (list of string, secret)
      # codes: [{file: FILL-IN}]
  # (list of object)
  peers:
    -
      # (string)
      host: FILL-IN
      # (integer)
      # port: 443
  # (map of object)
  # pools:
    # FILL-IN:
      # (integer)
      # size: FILL-IN
  # (object)
  tls: FILL-IN
    # (string)
    # name: FILL-IN
`

func kitOf(t *testing.T, schema string) string {
	t.Helper()
	settings, err := Parse(schema)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteKit(&out, settings); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func load(t *testing.T, text string) (conformance.Kit, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kit.yaml")
	for name, text := range map[string]string{path: text, filepath.Join(filepath.Dir(path), "pin.txt"): "1234\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return conformance.LoadKit(path)
}

func TestKitHasEachSettingWithWhatIsKnownOfIt(t *testing.T) {
	text := kitOf(t, kitSchema)
	if !strings.Contains(text, kitSettings+"\n") {
		t.Errorf("it has\n%s", text)
	}
	if strings.Contains(text, "hidden") {
		t.Error("it shows the default of a secret")
	}
}

func TestKitIsRefusedUntilFilledIn(t *testing.T) {
	text := kitOf(t, kitSchema)
	for _, step := range []struct{ replace, with, refused string }{
		{"", "", "settings.ca.id is still FILL-IN"},
		{"    id: FILL-IN", "    id: 7", "settings.peers.0.host is still FILL-IN"},
		{"host: FILL-IN", "host: a", "settings.pin.file is still FILL-IN"},
		{"  pin: {file: FILL-IN}", "  pin: {file: pin.txt}", "settings.tls is still FILL-IN"},
		{"tls: FILL-IN\n    # (string)\n    # name: FILL-IN", "tls:\n    # (string)\n    name: b", "settings.url is still FILL-IN"},
		{"  # pools:\n    # FILL-IN:", "  pools:\n    FILL-IN:", "settings.pools.FILL-IN is still FILL-IN"},
		{"  pools:\n    FILL-IN:", "  pools:\n    small:", "settings.url is still FILL-IN"},
		{"  url: FILL-IN", "  url: https://ca.example", ""},
	} {
		if !strings.Contains(text, step.replace) {
			t.Fatalf("%q is not in\n%s", step.replace, text)
		}
		text = strings.Replace(text, step.replace, step.with, 1)
		_, err := load(t, text)
		if step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%v, want %q", err, step.refused)
		}
	}
	kit, err := load(t, text)
	want := map[string]any{
		"url": "https://ca.example", "pin": map[string]any{"file": "pin.txt"}, "ca": map[string]any{"id": 7.0}, "tls": map[string]any{"name": "b"},
		"peers": []any{map[string]any{"host": "a"}}, "pools": map[string]any{"small": nil},
	}
	if err != nil || !reflect.DeepEqual(kit.Settings, want) {
		t.Errorf("%v, %v", kit.Settings, err)
	}
}

// With all comments taken off, it is still YAML.
func TestCommentedSettingsAreYAML(t *testing.T) {
	text := strings.NewReplacer("tls: FILL-IN", "tls:", "FILL-IN", "x", "  # (", "  ## (", "  # ", "  ").Replace(kitOf(t, kitSchema))
	kit, err := load(t, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	secret := map[string]any{"file": "x"}
	for name, want := range map[string]any{
		"tries": 3.0, "no": "a: b", "token": secret, "key": map[string]any{"file": "x", "a.b": "c"}, "peers": []any{map[string]any{"host": "x", "port": 443.0}},
		"ca":    map[string]any{"id": "x", "login": map[string]any{"name": secret, "codes": []any{secret}}},
		"pools": map[string]any{"x": map[string]any{"size": "x"}}, "tls": map[string]any{"name": "x"},
	} {
		if !reflect.DeepEqual(kit.Settings[name], want) {
			t.Errorf("%s: %v, want %v", name, kit.Settings[name], want)
		}
	}
}

func TestKitOfProviderWithoutSettingsIsAccepted(t *testing.T) {
	if kit, err := load(t, kitOf(t, "")); err != nil || len(kit.Settings) != 0 {
		t.Errorf("%v, %v", kit, err)
	}
}
