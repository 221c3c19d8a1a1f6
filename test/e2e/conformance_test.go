package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
)

// kit runs the suite on a binary by the command that authors run.
func kit(t *testing.T, binary, kitFile string) conformance.Report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kit.yaml")
	if err := os.WriteFile(path, []byte(kitFile), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries(t), "countersign"), "provider", "test", binary, "--kit", path, "-o", "json")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v", err)
	}
	var report conformance.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Outcome == conformance.Failed {
			t.Errorf("%s %s Seen: %s", r.ID, r.Rule, r.Seen)
		}
	}
	return report
}

func TestFileProviderConformance(t *testing.T) {
	t.Parallel()
	report := kit(t, filepath.Join(binaries(t), "countersign-provider-file"), `
settings: {dir: `+filepath.Join(t.TempDir(), "ca")+`, self_signed: true, trust_domain: example.org}
wrong_settings: {dir: ca, max_ttl: soon}
identity: {spiffe_id: "spiffe://example.org/web", dns_names: [web.example.org, www.example.org]}
refused_identity: {spiffe_id: "spiffe://stranger.test/web"}
`)
	var missing []string
	for _, r := range report.Results {
		if r.Outcome == conformance.Unrun && r.Level != conformance.TokenExchange && r.Level != conformance.Renewal {
			missing = append(missing, r.ID)
		}
	}
	// No enum, no secret setting, no online check, no value in the process, no token looked at; and
	// a process does not show how long it works for a caller that has gone.
	if want := []string{"SET-12", "SET-20", "SET-21", "SIGN-26", "SIGN-27", "DENY-06", "DENY-07", "FAULT-02", "FAULT-03", "WATCH-06", "WATCH-10", "JWT-12", "WIT-16"}; !slices.Equal(missing, want) {
		t.Errorf("not run are %v, want %v", missing, want)
	}
}
