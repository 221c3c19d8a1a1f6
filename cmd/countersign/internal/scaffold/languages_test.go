//go:build e2e

package scaffold_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/scaffold"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// languages are those with a library: the variable that names the folder of
// scripts/get-provider-NAME, and the folder of its interpreter.
var languages = map[string]struct{ folder, interpreter string }{
	"python": {"COUNTERSIGN_PROVIDER_PYTHON", "venv/bin"},
	"node":   {"COUNTERSIGN_PROVIDER_NODE", "."},
	"rust":   {"COUNTERSIGN_PROVIDER_RUST", "."},
}

var must = fatal.If

// A newcomer who follows the instructions ends with a provider whose own tests, the suite, pass: each
// of the commands that `provider new` prints, and then the test.
func TestNewProviderInEachLanguagePassesSuite(t *testing.T) {
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", filepath.Join(programs.Foreign(t, l.folder), l.interpreter)+":"+programs.Folder(t, "countersign")+":"+os.Getenv("PATH"))
			plan := scaffold.Plan{Name: "7-new", Lang: name, Dir: filepath.Join(t.TempDir(), "new")}
			dir, err := scaffold.Write(plan)
			must(t, err)
			commands, missing := plan.Steps()
			if missing != "" {
				t.Fatal(missing)
			}
			if built := filepath.Join(programs.Foreign(t, l.folder), "target"); name == "rust" {
				runIn(t, dir, "cp -a "+built+" target") // the dependencies, which take minutes
			}
			for _, command := range commands[:len(commands)-1] { // the last one inspects it
				runIn(t, dir, command)
			}
			mustNotTakePoison(t, dir, name)
			putCA(t, dir, plan.Test())
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
	kit, err := os.OpenFile(filepath.Join(dir, "kit.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = kit.WriteString("wrong_settings: {dri: x}\ntoken_ignored: true\ncall_timeout: 40s # 64 calls at once, in an interpreter on a shared core\n")
	must(t, errors.Join(err, kit.Close()))
	runIn(t, dir, test)
	mustReportFailure(t, dir, test)
}

// mustReportFailure checks that the tests fail with the suite.
func mustReportFailure(t *testing.T, dir, test string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "kit.yaml"), []byte("settings: {dri: x}\n"), 0o600))
	if out, err := commandIn(t, dir, test).CombinedOutput(); err == nil || !strings.Contains(string(out), "the conformance suite failed") || !strings.Contains(string(out), "dri is unknown") {
		t.Errorf("%s: %v\n%s", test, err, out)
	}
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
