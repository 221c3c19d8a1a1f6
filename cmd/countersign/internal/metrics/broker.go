package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/sdk/broker"
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
	m.Registry.MustRegister(calls, open)
	for _, outcome := range broker.Outcomes() {
		calls.WithLabelValues(string(outcome)) // exported as 0 from the start
	}
	return func(outcome broker.Outcome) { calls.WithLabelValues(string(outcome)).Inc() }
}
