//go:build e2e

package pluginhost_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/plugin-host/providertest"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// The suite starts an interpreter for each of many checks, which takes 20 s of a core for each
// provider: `make check NAME=kit` runs it.
func TestForeignLanguageProviderPassesSuite(t *testing.T) {
	t.Parallel()
	for name, l := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passSuite(t, filepath.Join(programs.Foreign(t, l.folder), "countersign-provider-full"), fullKit(), 140)
		})
	}
}

// fullKit is what the author of the provider full would give.
func fullKit() conformance.Kit {
	return conformance.Kit{
		Settings:            full(nil).Settings,
		WrongSettings:       map[string]any{"tries": 0},
		RefusedIdentity:     conformance.Names{SPIFFEID: "spiffe://example.org/denied"},
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
