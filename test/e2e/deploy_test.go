package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

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

// promRules is a file of rules, and promTests one of tests, as promtool reads them.
type (
	promRules struct {
		Groups []promGroup `json:"groups"`
	}
	promGroup struct {
		Name  string           `json:"name"`
		Rules []map[string]any `json:"rules"`
	}
	promTests struct {
		Files []string         `json:"rule_files"`
		Every string           `json:"evaluation_interval"`
		Tests []map[string]any `json:"tests"`
	}
)

// about returns the tests of an alert, and how many want it to fire, and not to.
func (p promTests) about(alert string) (tests []map[string]any, fires, silent int) {
	for _, test := range p.Tests {
		cases := slices.DeleteFunc(slices.Clone(test["alert_rule_test"].([]any)), func(c any) bool { return c.(map[string]any)["alertname"] != alert })
		for _, c := range cases {
			if c.(map[string]any)["exp_alerts"] != nil {
				fires++
			} else {
				silent++
			}
		}
		if len(cases) > 0 {
			only := maps.Clone(test)
			only["alert_rule_test"] = cases
			tests = append(tests, only)
		}
	}
	return tests, fires, silent
}

// promtool evaluates all rules of a file for each test, so that each alert has files of its own:
// this takes a tenth of the time.
func TestEachAlertFiresOnlyWhenItShould(t *testing.T) {
	t.Parallel()
	promtool, dir, apart := programs.Foreign(t, "COUNTERSIGN_PROMTOOL"), programs.File(t, "deploy/prometheus"), t.TempDir()
	checked(t, dir, promtool, "check", "rules", "alerts.yaml")
	var rules promRules
	var tests promTests
	readYAML(t, filepath.Join(dir, "alerts.yaml"), &rules)
	readYAML(t, filepath.Join(dir, "alerts_test.yaml"), &tests)
	args := []string{"test", "rules"}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alert := rule["alert"].(string)
			about, fires, silent := tests.about(alert)
			if fires == 0 || silent == 0 {
				t.Errorf("%s is tested %d times to fire and %d times to be silent", alert, fires, silent)
			}
			writeJSON(t, filepath.Join(apart, alert+".yaml"), promRules{[]promGroup{{group.Name, []map[string]any{rule}}}})
			writeJSON(t, filepath.Join(apart, alert+"_test.yaml"), promTests{[]string{alert + ".yaml"}, tests.Every, about})
			args = append(args, alert+"_test.yaml")
		}
	}
	checked(t, apart, promtool, args...)
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(readText(t, path)), into); err != nil {
		t.Fatal(err)
	}
}

// writeJSON writes what is YAML, too.
func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	writeWhole(t, path, text)
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
	var rules []map[string]any
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$discovery", ".*", "$ra", ".*").Replace(target.Expr)
			rules = append(rules, map[string]any{"alert": "panel", "expr": expr})
		}
	}
	if len(rules) == 0 {
		t.Fatal("there are no questions")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeJSON(t, file, promRules{[]promGroup{{"dashboard", rules}}})
	checked(t, ".", promtool, "check", "rules", "--lint=none", file)
}

// Tenths of what `systemd-analyze security` calls exposure, of 100.
const mostExposed = "20"

func TestSystemdUnitsAreValidAndTight(t *testing.T) {
	t.Parallel()
	analyze := programs.Foreign(t, "COUNTERSIGN_SYSTEMD_ANALYZE")
	for _, name := range []string{"countersign", "countersign-discovery", "countersign-ra"} {
		unit := readText(t, programs.File(t, "deploy/systemd/"+name+".service"))
		file := filepath.Join(t.TempDir(), name+".service")
		// It wants the program to be there.
		writeWhole(t, file, []byte(strings.ReplaceAll(unit, "/usr/bin/"+name+" ", filepath.Join(binaries(t), "countersign")+" ")))
		for line := range strings.Lines(checked(t, ".", analyze, "verify", "--man=no", file)) {
			// systemd 254 brought DelegateSubgroup=; before, the program makes the group itself.
			if strings.Contains(line, name+".service") && !strings.Contains(line, "'DelegateSubgroup'") {
				t.Error(line)
			}
		}
		checked(t, ".", analyze, "security", "--offline=true", "--no-pager", "--threshold="+mostExposed, file)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
