package providertest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// install makes this test's binary a provider of that name.
func install(t *testing.T, name string) Target {
	t.Helper()
	proctest.NeedsProcess(t)
	dir := proctest.Folder(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, prefix+name)
	if err := os.Link(self, path); err != nil {
		program, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(path, program, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime := filepath.Join(dir, "run")
	if err := os.Mkdir(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, _ := os.ReadDir(runtime); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return Target{Path: path, TempDir: runtime, Env: map[string]string{"GORACE": "atexit_sleep_ms=0"}, Kit: conformance.Kit{
		Settings:        map[string]any{"folder": dir, "password": "a-very-secret-password"},
		WrongSettings:   map[string]any{"folder": "wrong"},
		RefusedIdentity: conformance.Names{SPIFFEID: "spiffe://stranger.test/web"},
		TokenRequired:   true, Keys: []pki.KeyType{pki.ECDSAP256},
	}}
}

func failed(report *conformance.Report) (ids, seen []string) {
	for _, r := range report.Results {
		if r.Outcome == conformance.Failed {
			ids, seen = append(ids, r.ID), append(seen, r.ID+": "+r.Seen)
		}
	}
	return ids, seen
}

// servingChecks are those that may depend on how a provider is served, not on what it answers.
func servingChecks() (ids []string) {
	for _, c := range Checks() {
		switch prefix, _, _ := strings.Cut(c.ID, "-"); prefix {
		case "META", "PROTO", "WATCH", "FAULT", "PROC":
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func TestConformingProvidersPassHoweverServed(t *testing.T) {
	for name, unrun := range map[string]string{
		"good":   "",
		"pinned": "",
		"stock":  "PROC-13",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := install(t, name)
			if name != "good" {
				target.Only = servingChecks()
			}
			report, err := Run(t.Context(), target, func(conformance.Result) {})
			if err != nil {
				t.Fatal(err)
			}
			if _, seen := failed(report); seen != nil {
				t.Errorf("failed:\n%s", strings.Join(seen, "\n"))
			}
			var skipped []string
			for _, r := range report.Results {
				if r.Outcome == conformance.Unrun && strings.HasPrefix(r.ID, "PROC-") {
					skipped = append(skipped, r.ID)
				}
			}
			if got := strings.Join(skipped, " "); got != unrun || report.Passed < 90 && name == "good" || report.Passed < 30 {
				t.Errorf("%d passed, not run of a process's: %q, want %q", report.Passed, got, unrun)
			}
		})
	}
}

func TestUnrunnableTargetIsAnError(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "provider")
	script := filepath.Join(dir, prefix+"open")
	for _, path := range []string{other, script} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(script, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		other:                               "is called countersign-provider-<name>",
		script:                              "writable by others",
		filepath.Join(dir, prefix+"nobody"): "not installed",
	} {
		report, err := Run(context.Background(), Target{Path: path}, func(conformance.Result) {})
		if report != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestProviderExitingAtOnceFailsFirstCheck(t *testing.T) {
	target := install(t, "exits")
	target.Levels = []conformance.Level{conformance.Sign}
	script := "#!/bin/sh\necho no licence found >&2\nexit 3\n"
	if err := os.Remove(target.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target.Path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), target, func(conformance.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	if report.Passed > 0 || report.Results[0].Outcome == conformance.Passed {
		t.Errorf("%+v", report.Results[0])
	}
}

// What the author has to know is in the log: it stands below the check, without secrets.
func TestFailedCheckShowsProvidersLog(t *testing.T) {
	target := install(t, "panics")
	target.Only = []string{"SET-06", "SIGN-01", "DENY-05"}
	report, err := Run(t.Context(), target, func(conformance.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.ID != "DENY-05" && (r.Outcome != conformance.Passed || r.Log != nil) {
			t.Errorf("%s %s: %s, log %q", r.ID, r.Outcome, r.Seen, r.Log)
		}
	}
	var text strings.Builder
	conformance.WriteLine(&text, report.Results[2])
	for _, want := range []string{"FAILED   DENY-05", "\n         log       error: call panicked", `panic="what is a stranger?"`, "providertest.(*authority).CSRSign"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}

func TestLogOfFailedCheckHasNoSecrets(t *testing.T) {
	target := install(t, "proc-21") // it logs the password that it is given
	target.Kit.WrongSettings = target.Kit.Settings
	target.Only = []string{"SET-14"}
	report, err := Run(t.Context(), target, func(conformance.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	if log := slices.Compact(report.Results[0].Log); len(log) != 1 || log[0] != "info: logging in password=(secret)" { // a line for each start
		t.Errorf("the log is %q, of %+v", log, report.Results[0])
	}
}

// The provider gets the value of a reference, and logs it.
func TestSecretThatKitRefersToIsInNoReport(t *testing.T) {
	t.Setenv("KIT_PIN", "a-pin-of-the-environment")
	target := install(t, "proc-21")
	target.Kit.Settings["password"] = map[string]any{"env": "KIT_PIN"}
	target.Kit.WrongSettings = target.Kit.Settings
	target.Only = []string{"SET-14"}
	report, err := Run(t.Context(), target, func(conformance.Result) {})
	if err != nil {
		t.Fatal(err)
	}
	if log := slices.Compact(report.Results[0].Log); len(log) != 1 || log[0] != "info: logging in password=(secret)" { // a line for each start
		t.Errorf("the log is %q, of %+v", log, report.Results[0])
	}
	r, err := newRig(target)
	if err != nil {
		t.Fatal(err)
	}
	if env := strings.Join(r.environ(), "\n"); strings.Contains(env, "KIT_PIN") || !strings.Contains(env, "GORACE=") || !strings.Contains(env, "PATH=") {
		t.Error("a process started by hand gets another environment")
	}
}
