//go:build e2e

package scaffold_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/scaffold"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/plugin-host/providertest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// languages are those with a library: the variable that names the folder of
// scripts/get-provider-NAME, and the folder of its interpreter.
var languages = map[string]struct{ folder, interpreter string }{
	"python": {"COUNTERSIGN_PROVIDER_PYTHON", "venv/bin"},
	"node":   {"COUNTERSIGN_PROVIDER_NODE", "."},
	"rust":   {"COUNTERSIGN_PROVIDER_RUST", "."},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// passSuite fails for each check that fails, and if fewer than least ran: what a provider does not
// offer is not run.
func passSuite(t *testing.T, path string, kit conformance.Kit, least int) {
	t.Helper()
	kit.CallTimeout = conformance.Duration(40 * time.Second) // 64 calls at once, in an interpreter on a shared core
	report, err := providertest.Run(t.Context(), providertest.Target{Path: path, Kit: kit}, func(r conformance.Result) {
		if r.Outcome == conformance.Failed {
			t.Errorf("%s: %s", r.ID, r.Seen)
		}
	})
	must(t, err)
	if report.Passed < least {
		t.Errorf("%d checks were passed", report.Passed)
	}
}

// A newcomer who follows the instructions ends with a provider that passes: each of the commands
// that `provider new` prints, and then the suite.
func TestNewProviderInEachLanguagePassesSuite(t *testing.T) {
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", filepath.Join(programs.Foreign(t, l.folder), l.interpreter)+":"+os.Getenv("PATH"))
			plan := scaffold.Plan{Name: "7-new", Lang: name, Dir: filepath.Join(t.TempDir(), "new")}
			dir, err := scaffold.Write(plan)
			must(t, err)
			commands, missing := plan.Steps()
			if missing != "" {
				t.Fatal(missing)
			}
			inspect := commands[len(commands)-1]
			for _, command := range commands[:len(commands)-1] {
				runIn(t, dir, command)
			}
			mustNotTakePoison(t, dir, name)
			putCA(t, dir, plan.Test())
			binary := filepath.Join(dir, strings.Fields(inspect)[3])
			passSuite(t, binary, conformance.Kit{WrongSettings: map[string]any{"dri": "x"}}, 90)
		})
	}
}

// putCA checks that a new provider's tests fail for its CA alone, and pass with another.
func putCA(t *testing.T, dir, test string) {
	t.Helper()
	const want = " signs with a CA for tests, which no peer trusts: put your CA's client in its place (step 4 of docs/write-a-provider.md)"
	if out, err := commandIn(t, dir, test).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%s: %v\n%s", test, err, out)
	}
	for file, edit := range map[string][2]string{ // not by the name that the test looks for
		"src/main.rs":       {"testing::Ca}", "testing as trial};\nuse trial::{Ca}"},
		"authority.js":      {"'countersign-provider/testing'", "'countersign-provider' + '/testing'"},
		"provider_7_new.py": {"from countersign_provider.testing import CA", "from importlib import import_module\nCA = import_module('countersign_provider' + '.testing').CA"},
	} {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			continue // another language's
		}
		must(t, os.WriteFile(path, []byte(strings.Replace(string(text), edit[0], edit[1], 1)), 0o600))
	}
	runIn(t, dir, test)
}

// runIn runs a command as a newcomer does, without the environment of these tests.
func runIn(t *testing.T, dir, command string) {
	t.Helper()
	began := time.Now()
	if out, err := commandIn(t, dir, command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Logf("%s: %s", command, time.Since(began).Round(time.Millisecond))
}

func commandIn(t *testing.T, dir, command string) *exec.Cmd {
	t.Helper()
	proctest.NeedsProcess(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COUNTERSIGN_") })
	return cmd
}
