package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/sdk/agent"
)

// workloads collects the counters of an agent of many identities. No label has the name of
// an identity, as clients choose those.
type workloads struct{ agent *agent.Agent }

var (
	identitiesDesc = prometheus.NewDesc("countersign_workload_identities",
		"Identities by state: held, missing, expired, idle, or unverified.", []string{"state"}, nil)
	workloadRequestsDesc = prometheus.NewDesc("countersign_workload_requests",
		"Certificate requests for workloads: in-flight, waiting, or pending at the CA.", []string{"state"}, nil)
	workloadEventsDesc = prometheus.NewDesc("countersign_workload_events_total",
		"Events of identities and their streams: requested, rotated, joined, failed, refused, ended, released, turned-away, over-limit.", []string{"event"}, nil)
	workloadExpiryDesc = prometheus.NewDesc("countersign_workload_expiry_timestamp_seconds", "When the first of the held certificates expires.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (w *workloads) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{identitiesDesc, workloadRequestsDesc, workloadEventsDesc, workloadExpiryDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (w *workloads) Collect(to chan<- prometheus.Metric) {
	n, many := w.agent.Identities()
	if !many {
		return
	}
	values := func(desc *prometheus.Desc, kind prometheus.ValueType, of map[string]int) {
		for label, value := range of {
			to <- prometheus.MustNewConstMetric(desc, kind, float64(value), label)
		}
	}
	values(identitiesDesc, prometheus.GaugeValue, map[string]int{
		"held": n.Held, "missing": n.Missing, "expired": n.Expired, "idle": n.Idle, "unverified": n.Unverified,
	})
	values(workloadRequestsDesc, prometheus.GaugeValue, map[string]int{"in-flight": n.InFlight, "waiting": n.Waiting, "pending": n.Pending})
	values(workloadEventsDesc, prometheus.CounterValue, map[string]int{
		"requested": n.Requests, "rotated": n.Rotations, "joined": n.Joins, "failed": n.Failures, "refused": n.Refused,
		"ended": n.Ended, "released": n.Released, "turned-away": n.TurnedAway, "over-limit": n.OverLimit,
	})
	if !n.NextExpiry.IsZero() {
		to <- prometheus.MustNewConstMetric(workloadExpiryDesc, prometheus.GaugeValue, float64(n.NextExpiry.Unix()))
	}
}
