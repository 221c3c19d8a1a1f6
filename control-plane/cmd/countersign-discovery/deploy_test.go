package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// exposed returns what /metrics may show, each with its labels.
func exposed() map[string][]string {
	m := newMetrics()
	m.watch(&service{}) // nothing is collected
	descs := make(chan *prometheus.Desc)
	go func() { defer close(descs); m.registry.Describe(descs) }()
	all := map[string][]string{}
	for desc := range descs {
		found := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(desc.String())
		all[found[1]] = strings.Split(found[2], ",")
	}
	return all
}

// question is one to Prometheus, with the words that show its answer.
type question struct{ Expr, LegendFormat string }

func alerts(t *testing.T) (all []question) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, programs.File(t, "deploy/prometheus/alerts.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			all = append(all, question{Expr: rule.Expr})
		}
	}
	return all
}

func panels(t *testing.T) (all []question) {
	t.Helper()
	var file struct {
		Panels     []struct{ Targets []question }
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal([]byte(read(t, programs.File(t, "deploy/grafana/countersign.json"))), &file); err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Panels {
		all = append(all, p.Targets...)
	}
	for _, v := range file.Templating.List {
		all = append(all, question{Expr: v.Definition})
	}
	return all
}

var (
	ours    = regexp.MustCompile(`\bcountersign_discovery_[a-z_]+`)
	labels  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`) // of a selector
	grouped = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	shown   = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// names are the metrics of the discovery service, a histogram by its own name.
func (q question) names() (all []string) {
	for _, name := range ours.FindAllString(q.Expr, -1) {
		all = append(all, strings.TrimSuffix(name, "_bucket"))
	}
	return all
}

// labels are those that it tells apart, and those that it shows.
func (q question) labels() (all []string) {
	for _, found := range append(labels.FindAllStringSubmatch(q.Expr, -1), shown.FindAllStringSubmatch(q.LegendFormat, -1)...) {
		all = append(all, found[1])
	}
	for _, found := range grouped.FindAllStringSubmatch(q.Expr, -1) {
		all = append(all, strings.Split(found[1], ", ")...)
	}
	return all
}

func TestAlertsAndDashboardMatchMetrics(t *testing.T) {
	t.Parallel()
	all, used := exposed(), map[string]bool{}
	for _, q := range append(alerts(t), panels(t)...) {
		known := []string{"job", "instance", "le"}
		for _, name := range q.names() {
			used[name] = true
			known = append(known, all[name]...)
			if all[name] == nil {
				t.Errorf("%s is asked for, which /metrics does not expose: %s", name, q.Expr)
			}
		}
		for _, label := range q.labels() {
			if len(q.names()) > 0 && !slices.Contains(known, label) {
				t.Errorf("the label %s is asked for, which none of these has: %s", label, q.Expr)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "countersign_") && !used[name] {
			t.Errorf("neither an alert nor the dashboard looks at %s", name)
		}
	}
}

func TestDocsExplainExactlyTheMetrics(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, programs.File(t, "docs/discovery.md")), "\n## What to watch\n")
	got := map[string]bool{}
	for line := range strings.Lines(table) {
		cell, isRow := strings.CutPrefix(line, "| `")
		if cell, _, _ = strings.Cut(cell, " | "); !isRow {
			continue
		}
		for _, m := range regexp.MustCompile("([a-z_]+)(?:\\{([a-z_,]+)\\})?`").FindAllStringSubmatch(cell, -1) {
			got["countersign_discovery_"+m[1]+" "+m[2]] = true
		}
	}
	want := map[string]bool{}
	for name, labels := range exposed() {
		if strings.HasPrefix(name, "countersign_") {
			want[name+" "+strings.Join(labels, ",")] = true
		}
	}
	for one := range want {
		if !got[one] {
			t.Errorf("docs/discovery.md does not explain %s", one)
		}
	}
	for one := range got {
		if !want[one] {
			t.Errorf("docs/discovery.md explains %s, which is no metric", one)
		}
	}
}
