package program

import (
	"testing"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/internal/deploytest"
)

const prefix = metrics.Namespace + "_"

// described are metrics of which nothing is collected.
func described() *metrics.Metrics {
	m := metrics.New()
	m.Watch(metrics.Source{})
	return m
}

func TestAlertsAndDashboardMatchMetrics(t *testing.T) {
	t.Parallel()
	for _, name := range deploytest.Questions(t, described().Registry.Describe, prefix) {
		t.Errorf("neither an alert nor the dashboard looks at %s", name)
	}
}

func TestDocsExplainExactlyTheMetrics(t *testing.T) {
	t.Parallel()
	deploytest.Metrics(t, described().Registry.Describe, prefix, "docs/ra.md")
}
