package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// exposed returns the names of all that /metrics may show.
func exposed() map[string]bool {
	m := New(&status.Recorder{}, nil)
	m.Watch(nil, nil) // nothing is collected
	descs := make(chan *prometheus.Desc)
	go func() { defer close(descs); m.Registry.Describe(descs) }()
	names := map[string]bool{}
	for desc := range descs {
		names[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())[1]] = true
	}
	return names
}

func TestAlertsAndDashboardMatchMetrics(t *testing.T) {
	names, used := exposed(), map[string]bool{}
	for _, file := range []string{"prometheus/alerts.yaml", "grafana/countersign.json"} {
		text, err := os.ReadFile(programs.File(t, "deploy/"+file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\b(countersign|process|go)_[a-z_]+`).FindAllString(string(text), -1) {
			if strings.HasPrefix(name, "countersign_discovery_") || strings.HasPrefix(name, "countersign_ra_") {
				continue // those programs have tests of their own
			}
			used[name] = true
			// Where it is merged with the application's, the name begins otherwise.
			if !names[name] && !names[strings.TrimPrefix(name, "countersign_agent_")] {
				t.Errorf("%s names %s, which /metrics does not expose", file, name)
			}
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "countersign_") && !used[name] {
			t.Errorf("neither an alert nor the dashboard looks at %s; they look at %v", name, slices.Sorted(maps.Keys(used)))
		}
	}
}

// Each alert leads to a heading of its own, and no heading is left of an alert that has gone.
func TestEachAlertHasARunbook(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(programs.File(t, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var want []string
	for _, rule := range strings.Split(read("deploy/prometheus/alerts.yaml"), "      - alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		if !strings.Contains(rest, "/docs/runbook.md#"+strings.ToLower(name)+"'\n") {
			t.Errorf("the runbook_url of %s does not lead to its heading", name)
		}
		want = append(want, name)
	}
	var got []string
	for _, heading := range regexp.MustCompile(`(?m)^### (\w+)\n\n\S`).FindAllStringSubmatch(read("docs/runbook.md"), -1) {
		got = append(got, heading[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("docs/runbook.md has %q, the alerts are %q", got, want)
	}
}

func TestDashboardIsValidForGrafana(t *testing.T) {
	text, err := os.ReadFile(programs.File(t, "deploy/grafana/countersign.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.Title == "" || dashboard.UID == "" || len(dashboard.Panels) == 0 {
		t.Error("it has no title, no uid or no panels")
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.Type == "" || (len(p.Targets) == 0) != (p.Type == "row") || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d, %q, is not whole", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("%q lies on %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
