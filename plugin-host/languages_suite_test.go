//go:build e2e

package pluginhost_test

import (
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/plugin-host/providertest"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// The suite starts an interpreter for each of many checks, which takes 35 s of a core: `make
// check-kit` runs it.
func TestForeignLanguageProviderPassesSuite(t *testing.T) {
	t.Parallel()
	for name := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := needLanguage(t, name)
			target := providertest.Target{Path: filepath.Join(folder, "countersign-provider-"+name)}
			target.Kit.Settings = map[string]any{"dir": t.TempDir(), "trust_domain": "example.org"}
			report, err := providertest.Run(t.Context(), target, func(r conformance.Result) {
				if r.Outcome == conformance.Failed {
					t.Errorf("%s: %s", r.ID, r.Seen)
				}
			})
			must(t, err)
			if report.Passed < 90 { // what it does not offer is not run
				t.Errorf("%d checks were passed", report.Passed)
			}
		})
	}
}
