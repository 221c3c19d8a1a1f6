//go:build unix

package conformance

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// pins are references to a secret, by its value.
func pins(t *testing.T) map[string]map[string]any {
	t.Helper()
	t.Setenv("KIT_PIN", "from-a-variable")
	return map[string]map[string]any{
		"from-a-file":     {"file": "pin.txt"},
		"from-a-variable": {"env": "KIT_PIN"},
		"from-a-program":  {"command": []any{"/bin/sh", "-c", "echo from-a-program"}},
	}
}

func kitWith(t *testing.T, password any) Kit {
	t.Helper()
	kit := goodKit()
	kit.Dir = t.TempDir()
	for name, text := range map[string]string{"pin.txt": "from-a-file\n", "large": strings.Repeat("x", 64<<10+1)} {
		if err := os.WriteFile(filepath.Join(kit.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kit.Settings["password"], kit.WrongSettings["password"] = password, password
	return kit
}

// passwordSeen returns the passwords that a provider is configured with, and what the suite reports
// of its errors, which quote them.
func passwordSeen(t *testing.T, kit Kit) (seen []any, said string) {
	t.Helper()
	s := NewSession(kit, Value(wrapped(func(o *outer) {
		o.configure = func(_ context.Context, settings map[string]any) error {
			seen = append(seen, settings["password"])
			return ca.Errorf(ca.Internal, "the password %v is wrong", settings["password"])
		}
	})))
	defer s.Close()
	if err := s.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, check := range settingsChecks() {
		if check.ID == "SET-06" || check.ID == "SET-14" {
			check.After = nil
			said += s.Do(t.Context(), check).Seen
		}
	}
	return seen, said
}

func TestSecretsThatAKitRefersToReachTheProviderAlone(t *testing.T) {
	for want, ref := range pins(t) {
		seen, said := passwordSeen(t, kitWith(t, ref))
		if !slices.Equal(seen, []any{want, want}) {
			t.Errorf("%v: the provider gets %q", ref, seen)
		}
		if strings.Contains(said, want) || !strings.Contains(said, "is wrong") {
			t.Errorf("%v: the report says %q", ref, said)
		}
	}
	if seen, said := passwordSeen(t, kitWith(t, "plain-text")); len(seen) != 2 || strings.Contains(said, "plain-text") {
		t.Errorf("a secret in the kit: %q, %q", seen, said)
	}
}

func TestSecretThatCannotBeReadStopsTheSuite(t *testing.T) {
	for want, ref := range map[string]any{
		"the kit's settings: password: file ": map[string]any{"file": "none"},
		"has more than 65536 bytes":           map[string]any{"file": "large"},
		"variable KIT_NONE: it is not set":    map[string]any{"env": "KIT_NONE"},
		`password: has "fil"`:                 map[string]any{"fil": "pin.txt"},
	} {
		s := NewSession(kitWith(t, ref), Value(good()))
		if err := s.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", ref, err, want)
		}
		s.Close()
	}
	kit := kitWith(t, "plain")
	kit.WrongSettings["password"] = map[string]any{"file": "none"}
	s := NewSession(kit, Value(good()))
	defer s.Close()
	if err := s.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), "the kit's wrong_settings: password: file ") {
		t.Errorf("%v", err)
	}
}

// What is no secret is sent as it is, even if it looks like a reference.
func TestOtherSettingsOfAKitAreNotReferences(t *testing.T) {
	kit := goodKit()
	kit.Settings["address"] = map[string]any{"file": "none"}
	s := NewSession(kit, Value(good()))
	defer s.Close()
	if err := s.Resolve(t.Context()); err != nil || s.Kit.Settings["address"].(map[string]any)["file"] != "none" {
		t.Errorf("%v, %v", s.Kit.Settings, err)
	}
}
