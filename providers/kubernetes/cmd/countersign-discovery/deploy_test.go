package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAlertsNameWhatMetricsExpose(t *testing.T) {
	t.Parallel()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m := newMetrics()
		m.watch(&service{}) // nothing is collected
		m.registry.Describe(descs)
	}()
	names := map[string]bool{}
	for desc := range descs {
		names[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(desc.String())[1]] = true
	}
	text, err := os.ReadFile("../../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`\bcountersign_discovery_[a-z_]+`).FindAllString(string(text), -1)
	for _, name := range used {
		if !names[name] {
			t.Errorf("an alert names %s, which /metrics does not expose", name)
		}
	}
	if len(used) == 0 {
		t.Error("no alert is about the discovery service")
	}
}
