package conformance

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func kitFolder(t *testing.T, kit string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"kit.yaml": kit, "token": "eyJ.good\n", "empty": "\n", "large": strings.Repeat("x", maxFile+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "kit.yaml")
}

func TestKitFileHasTokensInFilesBesideIt(t *testing.T) {
	kit, err := LoadKit(kitFolder(t, `
settings: {address: ca.example.org, tries: 3, password: {file: token}}
identity: {spiffe_id: "spiffe://example.org/web"}
ttl: 90m
token_file: token
exchange: {subject_token_file: token, audience: ca}
abilities_off: [root-watcher]
env: {AWS_REGION: eu-central-1}
`))
	if err != nil {
		t.Fatal(err)
	}
	if kit.Token != "eyJ.good" || kit.Exchange.SubjectToken != "eyJ.good" || kit.Exchange.Audience != "ca" || kit.Env["AWS_REGION"] != "eu-central-1" {
		t.Errorf("%+v", kit)
	}
	if want := map[string]any{"address": "ca.example.org", "tries": 3.0, "password": map[string]any{"file": "token"}}; !reflect.DeepEqual(kit.Settings, want) || kit.TTL != Duration(90*time.Minute) {
		t.Errorf("%v, %v", kit.Settings, kit.TTL)
	}
}

func TestWrongKitFileIsRefused(t *testing.T) {
	for kit, want := range map[string]string{
		"setings: {}":                               `there is no entry "setings": docs/conformance.md lists all`,
		"fixed_lifetime: often":                     "fixed_lifetime is a string: docs/conformance.md shows how to write it",
		"settings":                                  "the file is a string: docs/conformance.md",
		"token_file: empty":                         "empty is empty",
		"token_file: large":                         "has more than 1048576 bytes",
		"token_file: none":                          "no such file",
		"ttl: soon":                                 "invalid duration",
		"settings: {url: FILL-IN}":                  "settings.url is still FILL-IN: write a value",
		"settings: {pin: {file: FILL-IN}}":          "settings.pin.file is still FILL-IN",
		"settings: {a: [{b: FILL-IN}]}":             "settings.a.0.b is still FILL-IN",
		"settings: {a: {FILL-IN: {b: c}}}":          "settings.a.FILL-IN is still FILL-IN",
		"secret_files: {pin: token}":                `there is no entry "secret_files"`,
		"settings: [1":                              "yaml",
		"settings: {a: {1: 2, b: .nan}}":            "kit.yaml",
		"settings: {a: 1, a: 2}":                    "already defined",
		"token_ignored: true\ntoken_required: true": "token_ignored is set with",
	} {
		if _, err := LoadKit(kitFolder(t, kit)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kit, err, want)
		}
	}
	if _, err := LoadKit(filepath.Join(t.TempDir(), "kit.yaml")); err == nil {
		t.Error("there is no such file")
	}
}

// The summary lists each missing entry once, with the checks that need it.
func TestSummaryListsWhatTheKitLacks(t *testing.T) {
	report := &Report{Provider: "acme 1"}
	kit := goodKit()
	kit.RefusedToken, kit.RefusedIdentity, kit.WrongSettings = "", Names{}, nil
	for _, r := range runAll(t, kit, Value(good())) {
		report.Add(r)
	}
	var text strings.Builder
	for _, r := range report.Results {
		WriteLine(&text, r)
	}
	if strings.Contains(text.String(), "in the kit") {
		t.Errorf("it is notified twice:\n%s", text.String())
	}
	text.Reset()
	report.WriteSummary(&text)
	for _, want := range []string{"--kit", "\n  refused_token_file         for DENY-06\n", "\n  wrong_settings             for SET-13, SET-14\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}

func TestTokenlessCANeedsNoRefusedToken(t *testing.T) {
	kit := goodKit()
	kit.RefusedToken, kit.TokenRequired, kit.TokenIgnored = "", false, true
	results := runAll(t, kit, Value(good()))
	for _, id := range []string{"DENY-06", "DENY-07"} {
		if r := resultOf(t, results, id); r.Outcome != Unrun || r.Seen != "by the kit, the CA ignores tokens" {
			t.Errorf("%s %s: %s", id, r.Outcome, r.Seen)
		}
	}
}

func TestProviderWithoutKitReportsThatItNeedsSettings(t *testing.T) {
	results := runAll(t, Kit{}, Value(good()))
	if r := resultOf(t, results, "SET-06"); r.Outcome != Failed || !strings.Contains(r.Seen, "the setting address is not set") || !strings.Contains(r.Seen, "--kit or --settings") {
		t.Errorf("SET-06 %s: %s", r.Outcome, r.Seen)
	}
}
