//go:build e2e

package providertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// The rest cannot be broken alone: a provider that does not start (03), or that the
// host's own kill (12) or reload (15) breaks, fails others with it.
var withoutMutant = []string{"PROC-03", "PROC-12", "PROC-15"}

func TestProcessThatBreaksOneRuleFailsExactlyThatCheck(t *testing.T) {
	for _, check := range processChecks(nil) {
		if slices.Contains(withoutMutant, check.ID) {
			continue
		}
		for _, name := range []string{strings.ToLower(check.ID), strings.ToLower(check.ID) + "-otherwise"} {
			if _, ok := programs[name]; !ok && strings.HasSuffix(name, "-otherwise") {
				continue // few are broken in two ways
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ids, seen := runProcessChecks(t, install(t, name))
				if !slices.Equal(ids, []string{check.ID}) {
					t.Errorf("failed:\n%s", strings.Join(seen, "\n"))
				}
			})
		}
	}
}

// runProcessChecks runs those alone.
func runProcessChecks(t *testing.T, target Target) (ids, seen []string) {
	t.Helper()
	r, err := newRig(target)
	if err != nil {
		t.Fatal(err)
	}
	session := conformance.NewSession(target.Kit, conformance.Subject{Form: "process", Open: r.open})
	defer session.Close()
	report := &conformance.Report{}
	for _, check := range processChecks(r) {
		report.Add(session.Do(t.Context(), check))
	}
	return failed(report)
}
