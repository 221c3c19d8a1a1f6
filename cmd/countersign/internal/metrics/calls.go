package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/sdk/broker"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// Broker returns the hook that counts what became of the calls of brokers. No label has the name of a
// broker or of a workload.
func (m *Metrics) Broker(streams func() int) func(broker.Outcome) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "countersign_broker_calls_total", Help: "Calls of the Broker API: granted, invalid, not-found, not-entitled, limited or unavailable; ended by the end of their workload.",
	}, []string{"outcome"})
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "countersign_broker_streams", Help: "Open streams and calls of the Broker API.",
	}, func() float64 { return float64(streams()) })
	m.Registry.MustRegister(open)
	return count(m, calls, broker.Outcomes())
}

// WorkloadAPI returns the hook that counts what became of the calls of the Workload API of an agent of
// many identities. No label has the name of a workload.
func (m *Metrics) WorkloadAPI() func(workloadapi.Outcome) {
	return count(m, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "countersign_workload_api_calls_total", Help: "Calls of the Workload API, with workloads: granted, no-identity, limited or unavailable; ended by the end of their process.",
	}, []string{"outcome"}), workloadapi.Outcomes())
}

// count returns the hook that counts calls by outcome.
func count[O ~string](m *Metrics, calls *prometheus.CounterVec, outcomes []O) func(O) {
	m.Registry.MustRegister(calls)
	for _, outcome := range outcomes {
		calls.WithLabelValues(string(outcome)) // exported as 0 from the start
	}
	return func(outcome O) { calls.WithLabelValues(string(outcome)).Inc() }
}
