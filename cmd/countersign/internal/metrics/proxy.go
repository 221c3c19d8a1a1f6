package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/proxy"
)

var (
	proxyStateDesc    = prometheus.NewDesc("countersign_proxy_state", "1 for the current state of the proxy.", []string{"state"}, nil)
	proxyEpochDesc    = prometheus.NewDesc("countersign_proxy_epoch", "The current hot-restart epoch of the proxy.", nil, nil)
	proxyRestartsDesc = prometheus.NewDesc("countersign_proxy_restarts_total", "Restarts of the proxy after it had exited.", nil, nil)
	proxyReloadsDesc  = prometheus.NewDesc("countersign_proxy_reloads_total", "Reloads of the proxy, by outcome: done, failed.", []string{"outcome"}, nil)
)

// Proxy adds the state of the child proxy.
func (m *Metrics) Proxy(p *proxy.Proxy) {
	m.Registry.MustRegister(proxied{p})
}

// proxied collects the current state of the proxy.
type proxied struct{ *proxy.Proxy }

// Describe implements [prometheus.Collector].
func (p proxied) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{proxyStateDesc, proxyEpochDesc, proxyRestartsDesc, proxyReloadsDesc} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (p proxied) Collect(to chan<- prometheus.Metric) {
	s := p.Status()
	for _, state := range proxy.States() {
		in := 0.0
		if state == s.State {
			in = 1
		}
		to <- prometheus.MustNewConstMetric(proxyStateDesc, prometheus.GaugeValue, in, string(state))
	}
	to <- prometheus.MustNewConstMetric(proxyEpochDesc, prometheus.GaugeValue, float64(s.Epoch))
	to <- prometheus.MustNewConstMetric(proxyRestartsDesc, prometheus.CounterValue, float64(s.Restarts))
	to <- prometheus.MustNewConstMetric(proxyReloadsDesc, prometheus.CounterValue, float64(s.Reloads), "done")
	to <- prometheus.MustNewConstMetric(proxyReloadsDesc, prometheus.CounterValue, float64(s.Failed), "failed")
}
