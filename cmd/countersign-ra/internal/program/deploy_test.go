package program

import (
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
)

const prefix = namespace + "_"

// described are metrics of which nothing is collected.
func described() *metrics {
	m := newMetrics()
	m.watch(&service{})
	return m
}

func TestAlertsAndDashboardMatchMetrics(t *testing.T) {
	t.Parallel()
	for _, name := range deploytest.Questions(t, described().registry.Describe, prefix) {
		t.Errorf("neither an alert nor the dashboard looks at %s", name)
	}
}

func TestDocsExplainExactlyTheMetrics(t *testing.T) {
	t.Parallel()
	deploytest.Metrics(t, described().registry.Describe, prefix, "docs/ra.md")
}
