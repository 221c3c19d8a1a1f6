package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// gatewayStreams is the first ID of the gateway socket's streams: each socket counts from 1.
const gatewayStreams = 1 << 32

// GatewayStream counts an event of the gateway's socket.
func (m *Metrics) GatewayStream(e xds.Event[secret.Caller]) {
	if e.Stream != 0 {
		e.Stream += gatewayStreams
	}
	m.Stream(e)
}

// Gateway counts an event of the client of the discovery service.
func (m *Metrics) Gateway(e gateway.Event) {
	m.upstream.WithLabelValues(string(e)).Inc()
}

var (
	connectedDesc = prometheus.NewDesc("countersign_gateway_connected", "1 while the discovery service is connected.", nil, nil)
	namesDesc     = prometheus.NewDesc("countersign_gateway_names", "Names of the gateway's Envoys: held, waiting, or unknown to the discovery service.", []string{"state"}, nil)
	gatewayExpiry = prometheus.NewDesc("countersign_gateway_first_expiry_timestamp_seconds", "When the first of the gateway's held secrets expires.", nil, nil)
)

// relayed collects the state of a discovery service's client. It collects nothing without a
// gateway's socket.
type relayed struct{ agent *agent.Agent }

// Describe implements [prometheus.Collector].
func (r *relayed) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{connectedDesc, namesDesc, gatewayExpiry} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (r *relayed) Collect(to chan<- prometheus.Metric) {
	status, ok := r.agent.Gateway()
	if !ok {
		return
	}
	value := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	connected, first, states := 0.0, int64(0), map[string]int{}
	if status.Connected {
		connected = 1
	}
	for _, name := range status.Names {
		states[name.State]++
		if end := name.NotAfter.Unix(); !name.NotAfter.IsZero() && (first == 0 || end < first) {
			first = end
		}
	}
	value(connectedDesc, connected)
	for _, state := range gateway.States {
		value(namesDesc, float64(states[state]), state)
	}
	if first != 0 {
		value(gatewayExpiry, float64(first))
	}
}
