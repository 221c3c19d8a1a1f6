//go:build e2e

package pluginhost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/scaffold"
	"github.com/countersign-dev/countersign/plugin-host/providertest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// The suite starts an interpreter for each of many checks, which takes 20 s of a core for each
// provider: `make check-kit` runs it.
func TestForeignLanguageProviderPassesSuite(t *testing.T) {
	t.Parallel()
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passSuite(t, filepath.Join(programs.Foreign(t, l.folder), "countersign-provider-full"), fullKit(), 110)
		})
	}
}

// fullKit is what the author of the provider full would give.
func fullKit() conformance.Kit {
	return conformance.Kit{
		Settings:            full(nil).Settings,
		WrongSettings:       map[string]any{"tries": 0},
		RefusedSubjectToken: "stranger",
		Exchange:            ca.TokenRequest{SubjectToken: "subject", Audience: "ca"},
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

// What a newcomer is told to run ends with a provider that passes: each of the commands that
// `provider new` prints, and then the suite.
func TestNewProviderInEachLanguagePassesSuite(t *testing.T) {
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			programs.Foreign(t, l.folder)
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
			binary := filepath.Join(dir, strings.Fields(inspect)[3])
			passSuite(t, binary, conformance.Kit{WrongSettings: map[string]any{"dri": "x"}}, 90)
		})
	}
}

// runIn runs a command as a newcomer does, but with nothing of what these tests are told by.
func runIn(t *testing.T, dir, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COUNTERSIGN_") })
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Logf("%s: %s", command, time.Since(began).Round(time.Millisecond))
}
