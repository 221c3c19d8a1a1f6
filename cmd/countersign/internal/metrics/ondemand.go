package metrics

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// demanded collects the counters of names on demand, by rule. No label has a name that a client
// asked for.
type demanded struct{ agent *agent.Agent }

var (
	demandNamesDesc = prometheus.NewDesc("countersign_ondemand_names",
		"Names on demand by state: held, expired, new, idle, failing, late or queued. A name may be in several.", []string{"rule", "state"}, nil)
	demandWaitingDesc = prometheus.NewDesc("countersign_ondemand_waiting", "Requests by clients that wait for a certificate on demand.", []string{"rule"}, nil)
	demandEventsDesc  = prometheus.NewDesc("countersign_ondemand_events_total",
		"Events of names on demand: issued, renewed, shared, ordered, failed, asked, covered or dropped.", []string{"rule", "event"}, nil)
	demandRefusedDesc = prometheus.NewDesc("countersign_ondemand_refused_total",
		"Requests by clients for names on demand that were refused, by reason; without a rule for name and no-rule.", []string{"rule", "reason"}, nil)
	demandBudgetDesc  = prometheus.NewDesc("countersign_ondemand_budget_left", "New names that the budget of a rule has left now.", []string{"rule"}, nil)
	demandStorageDesc = prometheus.NewDesc("countersign_ondemand_storage_faults_total",
		"Objects in the shared store that cannot be used, by kind: foreign or damaged. One that is read again counts again.", []string{"kind"}, nil)
	demandExpiryDesc = prometheus.NewDesc("countersign_ondemand_expiry_timestamp_seconds", "When the first of a rule's certificates expires.", []string{"rule"}, nil)
)

// Describe implements [prometheus.Collector].
func (d *demanded) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{demandNamesDesc, demandWaitingDesc, demandEventsDesc, demandRefusedDesc, demandBudgetDesc, demandStorageDesc, demandExpiryDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (d *demanded) Collect(to chan<- prometheus.Metric) {
	s, on := d.agent.OnDemand()
	if !on || len(s.Rules) == 0 {
		return
	}
	putRefused(to, "", s.Refused)
	putStorage(to, s.Storage)
	for _, r := range byName(s.Rules) {
		collectRule(to, r)
	}
}

// byName returns one state for each name. A reload leaves the names that a rule no longer matches to a
// removed rule of the same name, whose counters the present rule goes on with.
func byName(rules []ondemand.RuleStatus) (all []ondemand.RuleStatus) {
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b ondemand.RuleStatus) int { return cmp.Compare(number(a.Removed), number(b.Removed)) })
	for _, r := range rules {
		i := slices.IndexFunc(all, func(other ondemand.RuleStatus) bool { return other.Name == r.Name })
		if i < 0 {
			all = append(all, r)
			continue
		}
		sum := &all[i]
		for to, n := range map[*int]int{
			&sum.Held: r.Held, &sum.Expired: r.Expired, &sum.New: r.New, &sum.Idle: r.Idle, &sum.Failing: r.Failing, &sum.Late: r.Late,
			&sum.Queued: r.Queued, &sum.Waiting: r.Waiting,
		} {
			*to += n
		}
		if sum.NextExpiry.IsZero() || !r.NextExpiry.IsZero() && r.NextExpiry.Before(sum.NextExpiry) {
			sum.NextExpiry = r.NextExpiry
		}
	}
	return all
}

func collectRule(to chan<- prometheus.Metric, r ondemand.RuleStatus) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{r.Name}, labels...)...)
	}
	for state, n := range map[string]int{
		"held": r.Held, "expired": r.Expired, "new": r.New, "idle": r.Idle, "failing": r.Failing, "late": r.Late, "queued": r.Queued,
	} {
		gauge(demandNamesDesc, float64(n), state)
	}
	gauge(demandWaitingDesc, float64(r.Waiting))
	for event, n := range map[string]uint64{
		"issued": r.Issued, "renewed": r.Renewed, "shared": r.Shared, "ordered": r.Orders, "failed": r.Failed, "asked": r.Asked, "covered": r.Covered,
		"dropped": r.Dropped,
	} {
		to <- prometheus.MustNewConstMetric(demandEventsDesc, prometheus.CounterValue, float64(n), r.Name, event)
	}
	putRefused(to, r.Name, r.Refused)
	if r.BudgetLeft != nil {
		gauge(demandBudgetDesc, float64(*r.BudgetLeft))
	}
	if !r.NextExpiry.IsZero() {
		gauge(demandExpiryDesc, float64(r.NextExpiry.Unix()))
	}
}

// putStorage writes the counters of a shared store; nil is none.
func putStorage(to chan<- prometheus.Metric, s *secret.StorageStatus) {
	if s == nil {
		return
	}
	for kind, n := range map[string]int64{"foreign": s.Foreign, "damaged": s.Damaged} {
		to <- prometheus.MustNewConstMetric(demandStorageDesc, prometheus.CounterValue, float64(n), kind)
	}
}

func putRefused(to chan<- prometheus.Metric, rule string, refused map[ondemand.Refusal]uint64) {
	for reason, n := range refused {
		to <- prometheus.MustNewConstMetric(demandRefusedDesc, prometheus.CounterValue, float64(n), rule, string(reason))
	}
}
