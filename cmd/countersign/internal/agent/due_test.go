package agent

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/ondemand"
)

func TestStreamsWithoutCertificateMakeNothingDue(t *testing.T) {
	end := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		counts identities.Counts
		due    bool
	}{
		"strangers":        {identities.Counts{InFlight: 5, Waiting: 1000, Failing: 3}, false},
		"all is well":      {identities.Counts{NextExpiry: end}, false},
		"renewals failing": {identities.Counts{NextExpiry: end, Failing: 1}, true},
		"renewals pending": {identities.Counts{NextExpiry: end, Pending: 1}, true},
	} {
		if got, due := dueOfMany(test.counts); due != test.due || due && !got.Equal(end) {
			t.Errorf("%s: %s, %t", name, got, due)
		}
	}
}

func TestNamesOnDemandMakeTheirProviderDue(t *testing.T) {
	end, later := time.Unix(1_000_000, 0), time.Unix(2_000_000, 0)
	rules := []ondemand.RuleStatus{{Authority: "other", InFlight: 1, NextExpiry: end.Add(-time.Hour)}, {Authority: "ours", NextExpiry: end, New: 5}}
	if got, due := dueOnDemand(rules, "ours", later, false); due || !got.Equal(end) {
		t.Errorf("names that wait for their turn: %s, %t", got, due)
	}
	rules[1].InFlight = 1
	if got, due := dueOnDemand(rules, "ours", time.Time{}, false); !due || !got.Equal(end) {
		t.Errorf("an order in flight: %s, %t", got, due)
	}
}
