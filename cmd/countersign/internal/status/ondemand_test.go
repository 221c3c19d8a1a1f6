package status

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestPageShowsRulesOnDemandAndTheirTrouble(t *testing.T) {
	left := 3
	shops := ondemand.RuleStatus{
		Name: "<shops>", Authority: "le", Names: 7, Limit: 10, Held: 5, BudgetLeft: &left, Refused: map[ondemand.Refusal]uint64{ondemand.Denied: 4, ondemand.OverBudget: 2},
		Next: []ondemand.Expiry{{Name: "<a>.example.org", Ends: time.Now().Add(time.Hour), Late: true}, {Name: "b.example.org", Ends: time.Now().Add(2 * time.Hour)}},
	}
	report := Report{At: time.Now(), OnDemand: &ondemand.Status{Refused: map[ondemand.Refusal]uint64{ondemand.NoRule: 9}, Rules: []ondemand.RuleStatus{shops}}}
	report.OnDemand.Storage, report.OnDemand.Rules[0].Shared = &secret.StorageStatus{Foreign: 12, Damaged: 34}, 56
	page := write(report, "").out.String()
	for _, want := range []string{"Names on demand", "&lt;shops&gt;", "no rule matches 9", "over budget 2, not allowed 4", "as planned", "Budget left now", "&lt;a&gt;.example.org", "12 times", "34 times", "Taken from other machines", "56", "late", "b.example.org"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if trouble := report.onDemandTrouble(); trouble.Words != "" {
		t.Errorf("all is well, and it says %q", trouble.Words)
	}
	cache := shops
	cache.Names, cache.Evicts, cache.Idle = 10, true, 1
	report.OnDemand.Rules = []ondemand.RuleStatus{cache}
	if trouble := report.onDemandTrouble(); trouble.Words != "" {
		t.Errorf("an unused name makes room, and it says %q", trouble.Words)
	}
	for want, change := range map[string]func(r *ondemand.RuleStatus){
		"2 expired.":           func(r *ondemand.RuleStatus) { r.Expired, r.Late = 2, 3 },
		"3 renewals are late.": func(r *ondemand.RuleStatus) { r.Late, r.Failing = 3, 1 },
		"1 orders are failing": func(r *ondemand.RuleStatus) { r.Failing = 1 },
		"full.":                func(r *ondemand.RuleStatus) { r.Names = 10 },
		": full.":              func(r *ondemand.RuleStatus) { r.Names, r.Evicts = 10, true },
	} {
		worse := shops
		change(&worse)
		report.OnDemand.Rules = []ondemand.RuleStatus{shops, worse}
		if trouble := report.onDemandTrouble(); !strings.Contains(trouble.Words, want) || trouble.Grade == good {
			t.Errorf("it says %q (%s), want %q", trouble.Words, trouble.Grade, want)
		}
	}
}
