package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// checked runs a program, which must find nothing to complain about, in a folder.
func checked(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestEachAlertFiresOnlyWhenItShould(t *testing.T) {
	t.Parallel()
	promtool, dir := programs.Foreign(t, "COUNTERSIGN_PROMTOOL"), programs.File(t, "deploy/prometheus")
	checked(t, dir, promtool, "check", "rules", "alerts.yaml")
	checked(t, dir, promtool, "test", "rules", "alerts_test.yaml")
	rules, tests := readText(t, filepath.Join(dir, "alerts.yaml")), readText(t, filepath.Join(dir, "alerts_test.yaml"))
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		fires := strings.Count(tests, "alertname: "+alert[1]+"\n        exp_alerts:")
		silent := strings.Count(tests, "alertname: "+alert[1]+"\n") - fires
		if fires == 0 || silent == 0 {
			t.Errorf("%s is tested %d times to fire and %d times to be silent", alert[1], fires, silent)
		}
	}
}

// A panel's question is a rule's, once Grafana's own words are filled in.
func TestDashboardQueriesAreValidPromQL(t *testing.T) {
	t.Parallel()
	promtool := programs.Foreign(t, "COUNTERSIGN_PROMTOOL")
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, programs.File(t, "deploy/grafana/countersign.json"))), &dashboard); err != nil {
		t.Fatal(err)
	}
	var rules []map[string]string
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$discovery", ".*", "$ra", ".*").Replace(target.Expr)
			rules = append(rules, map[string]string{"alert": "panel", "expr": expr})
		}
	}
	text, err := json.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}}) // JSON is YAML
	if err != nil || len(rules) == 0 {
		t.Fatalf("%d questions, %v", len(rules), err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeWhole(t, file, text)
	checked(t, ".", promtool, "check", "rules", "--lint=none", file)
}

// Tenths of what `systemd-analyze security` calls exposure, of 100.
const mostExposed = "20"

func TestSystemdUnitIsValidAndTight(t *testing.T) {
	t.Parallel()
	analyze := programs.Foreign(t, "COUNTERSIGN_SYSTEMD_ANALYZE")
	unit := readText(t, programs.File(t, "deploy/systemd/countersign.service"))
	file := filepath.Join(t.TempDir(), "countersign.service")
	// It wants the program to be there.
	writeWhole(t, file, []byte(strings.ReplaceAll(unit, "/usr/bin/countersign", filepath.Join(binaries(t), "countersign"))))
	for line := range strings.Lines(checked(t, ".", analyze, "verify", "--man=no", file)) {
		// systemd 254 brought DelegateSubgroup=; before, the agent makes the group itself.
		if strings.Contains(line, "countersign.service") && !strings.Contains(line, "'DelegateSubgroup'") {
			t.Error(line)
		}
	}
	checked(t, ".", analyze, "security", "--offline=true", "--no-pager", "--threshold="+mostExposed, file)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
