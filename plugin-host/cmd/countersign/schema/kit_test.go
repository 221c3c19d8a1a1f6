package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

const kitSchema = `{"type": "object", "required": ["url", "pin"], "properties": {
	"url": {"type": "string", "description": "where: the #1 CA"},
	"tries": {"type": "integer", "default": 3, "enum": [1, 3]},
	"no": {"type": "string", "default": "a: b"},
	"pin": {"type": "string", "writeOnly": true, "description": "the PIN"},
	"token": {"type": "string", "writeOnly": true, "default": "hidden"},
	"key": {"type": "object", "properties": {"file": {"type": "string"}}}}}`

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
	for _, lines := range []string{
		"settings:\n  # (string) where: the #1 CA\n  url: FILL-IN\n  # (integer) (1, 3)\n  # tries: 3\n  # (string)\n  # \"no\": \"a: b\"\n  # (object)\n  # key: FILL-IN\n",
		"secret_files:\n  # (string) the PIN\n  pin: FILL-IN\n  # (string)\n  # token: FILL-IN\n",
	} {
		if !strings.Contains(text, lines) {
			t.Errorf("the kit lacks\n%sit has\n%s", lines, text)
		}
	}
	if strings.Contains(text, "hidden") {
		t.Error("it shows the default of a secret")
	}
}

func TestKitIsRefusedUntilFilledIn(t *testing.T) {
	text := kitOf(t, kitSchema)
	for _, step := range []struct{ replace, with, refused string }{
		{"", "", "settings.url is still FILL-IN"},
		{"  url: FILL-IN", "  url: https://ca.example", "secret_files.pin is still FILL-IN"},
		{"  pin: FILL-IN", "  pin: pin.txt", ""},
	} {
		text = strings.Replace(text, step.replace, step.with, 1)
		kit, err := load(t, text)
		if step.refused == "" && (err != nil || kit.Settings["url"] != "https://ca.example" || kit.Settings["pin"] != "1234" || len(kit.Settings) != 2) {
			t.Errorf("filled in: %v, %v", kit.Settings, err)
		}
		if step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%v, want %q", err, step.refused)
		}
	}
}

// With all comments taken off, it is still YAML.
func TestCommentedSettingsAreYAML(t *testing.T) {
	text := strings.NewReplacer("FILL-IN", "x", "  # (", "  ## (", "  # ", "  ").Replace(kitOf(t, kitSchema))
	text = strings.ReplaceAll(text, "pin: x", "pin: pin.txt")
	text = strings.ReplaceAll(text, "token: x", "token: pin.txt")
	if kit, err := load(t, text); err != nil || kit.Settings["tries"] != 3.0 || kit.Settings["no"] != "a: b" {
		t.Errorf("%v, %v\n%s", kit.Settings, err, text)
	}
}

func TestKitOfProviderWithoutSettingsIsAccepted(t *testing.T) {
	if kit, err := load(t, kitOf(t, "")); err != nil || len(kit.Settings) != 0 {
		t.Errorf("%v, %v", kit, err)
	}
}
