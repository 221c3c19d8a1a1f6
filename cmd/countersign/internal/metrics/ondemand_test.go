package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// ruleCollector collects fixed rules.
type ruleCollector []ondemand.RuleStatus

func (ruleCollector) Describe(to chan<- *prometheus.Desc) { (&demanded{}).Describe(to) }

func (c ruleCollector) Collect(to chan<- prometheus.Metric) {
	putStorage(to, nil)
	putStorage(to, &secret.StorageStatus{Foreign: 8, Damaged: 9})
	for _, r := range byName(c) {
		collectRule(to, r)
	}
}

// A series that is there twice would take all metrics with it.
func TestRemovedRulesOfANameAreCountedWithTheRuleOfThatName(t *testing.T) {
	left, now := 3, time.Now().Truncate(time.Second)
	refused := map[ondemand.Refusal]uint64{ondemand.Denied: 7}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(ruleCollector{
		{Name: "shops", Removed: true, Held: 2, Issued: 5, NextExpiry: now, Refused: refused},
		{Name: "shops", Removed: true, Held: 1, Issued: 5},
		{Name: "shops", Held: 4, Issued: 6, Shared: 2, BudgetLeft: &left, NextExpiry: now.Add(time.Hour), Refused: refused},
		{Name: "old", Removed: true, Held: 1},
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			got[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for key, want := range map[string]float64{
		"countersign_ondemand_names shops held": 7, "countersign_ondemand_names old held": 1, "countersign_ondemand_events_total issued shops": 6,
		"countersign_ondemand_events_total shared shops": 2, "countersign_ondemand_storage_faults_total foreign": 8, "countersign_ondemand_storage_faults_total damaged": 9,
		"countersign_ondemand_refused_total denied shops": 7, "countersign_ondemand_budget_left shops": 3,
		"countersign_ondemand_expiry_timestamp_seconds shops": float64(now.Unix()),
	} {
		if value, ok := got[key]; !ok || value != want {
			t.Errorf("%s is %v (%t), want %v in %v", key, value, ok, want, got)
		}
	}
}
