// Package deploytest checks a program's metrics and settings against the alerts, the dashboard
// and the documentation that mention them.
package deploytest

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/countersign-dev/countersign/internal/test/programs"
)

// exposed returns what /metrics may show, each with its labels. describe is that of a registry.
func exposed[D fmt.Stringer](describe func(chan<- D)) map[string][]string {
	descs := make(chan D)
	go func() { defer close(descs); describe(descs) }()
	all := map[string][]string{}
	for desc := range descs {
		found := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(desc.String())
		all[found[1]] = strings.Split(found[2], ",")
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(programs.File(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// question is one to Prometheus, with the words that show its answer.
type question struct{ Expr, LegendFormat string }

func alerts(t *testing.T) (all []question) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts.yaml")), &file); err != nil {
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
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/countersign.json")), &file); err != nil {
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
	labels  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`) // of a selector
	grouped = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
	shown   = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// names are the metrics that begin with prefix, a histogram by its own name.
func (q question) names(prefix string) (all []string) {
	for _, name := range regexp.MustCompile(`\b`+prefix+`[a-z_]+`).FindAllString(q.Expr, -1) {
		if base, ok := strings.CutSuffix(name, "_seconds_count"); ok {
			name = base + "_seconds"
		}
		all = append(all, strings.TrimSuffix(name, "_bucket"))
	}
	return all
}

// labels are those that it distinguishes, and those that it shows.
func (q question) labels() (all []string) {
	for _, found := range append(labels.FindAllStringSubmatch(q.Expr, -1), shown.FindAllStringSubmatch(q.LegendFormat, -1)...) {
		all = append(all, found[1])
	}
	for _, found := range grouped.FindAllStringSubmatch(q.Expr, -1) {
		all = append(all, strings.Split(found[1], ", ")...)
	}
	return all
}

// Questions checks that what alerts and the dashboard ask about metrics that begin with prefix
// is exposed, with these labels. It returns the metrics that none of them asks about. describe is that of the program's registry.
func Questions[D fmt.Stringer](t *testing.T, describe func(chan<- D), prefix string) (unused []string) {
	t.Helper()
	all, used := exposed(describe), map[string]bool{}
	for _, q := range append(alerts(t), panels(t)...) {
		known := []string{"job", "instance", "le"}
		for _, name := range q.names(prefix) {
			used[name] = true
			known = append(known, all[name]...)
			if all[name] == nil {
				t.Errorf("%s is asked for, which /metrics does not expose: %s", name, q.Expr)
			}
		}
		for _, label := range q.labels() {
			if len(q.names(prefix)) > 0 && !slices.Contains(known, label) {
				t.Errorf("the label %s is asked for, which none of these has: %s", label, q.Expr)
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, prefix) && !used[name] {
			unused = append(unused, name)
		}
	}
	return unused
}

// Metrics checks that the page explains exactly the metrics that begin with prefix, in the table
// below "What to watch".
func Metrics[D fmt.Stringer](t *testing.T, describe func(chan<- D), prefix, page string) {
	t.Helper()
	_, table, _ := strings.Cut(read(t, page), "\n## What to watch\n")
	got := map[string]bool{}
	for line := range strings.Lines(table) {
		cell, isRow := strings.CutPrefix(line, "| `")
		if cell, _, _ = strings.Cut(cell, " | "); !isRow {
			continue
		}
		for _, m := range regexp.MustCompile("([a-z_]+)(?:\\{([a-z_,]+)\\})?`").FindAllStringSubmatch(cell, -1) {
			got[prefix+m[1]+" "+m[2]] = true
		}
	}
	want := map[string]bool{}
	for name, labels := range exposed(describe) {
		if strings.HasPrefix(name, "countersign_") {
			want[name+" "+strings.Join(labels, ",")] = true
		}
	}
	same(t, page, want, got)
}

func same(t *testing.T, page string, want, got map[string]bool) {
	t.Helper()
	for one := range want {
		if !got[one] {
			t.Errorf("%s does not explain %s", page, one)
		}
	}
	for one := range got {
		if !want[one] {
			t.Errorf("%s explains %s, which is not there", page, one)
		}
	}
}

// Settings checks that the page lists exactly the settings of a configuration, in the table below
// "The settings". Those below providers[] are the agent's.
func Settings(t *testing.T, config reflect.Type, page string) {
	t.Helper()
	want, got := map[string]bool{"providers": true}, map[string]bool{}
	for _, path := range settingsOf(config, "") {
		if !strings.HasPrefix(path, "providers[].") {
			want[path] = true
		}
	}
	_, rows, _ := strings.Cut(read(t, page), "\n## The settings\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	for line := range strings.Lines(rows) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") {
			for _, m := range regexp.MustCompile("`([a-z0-9_.\\[\\]]+)`").FindAllStringSubmatch(cells[0], -1) {
				got[m[1]] = true
			}
		}
	}
	same(t, page, want, got)
}

// settingsOf returns the paths of all settings of a type; [] is any entry of a list.
func settingsOf(t reflect.Type, path string) (all []string) {
	if t.Kind() == reflect.Pointer {
		return settingsOf(t.Elem(), path)
	}
	if t.Kind() == reflect.Slice {
		if t.Elem().Kind() == reflect.Struct {
			path += "[]"
		}
		return settingsOf(t.Elem(), path)
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()) {
		return []string{path}
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag := f.Tag.Get("json"); tag != "" && tag != "-" {
			all = append(all, settingsOf(f.Type, strings.TrimPrefix(path+"."+tag, "."))...)
		}
	}
	return all
}
