package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// metrics counts what the hooks of the sdk tell. Labels come from the configuration
// and from fixed lists, never from a client.
type metrics struct {
	registry  *prometheus.Registry
	rotations *prometheus.CounterVec
	failures  *prometheus.CounterVec
	expired   *prometheus.CounterVec
	names     *prometheus.CounterVec
	roots     *prometheus.GaugeVec
	starts    *prometheus.CounterVec
	states    *prometheus.GaugeVec
	streams   *prometheus.CounterVec
	refused   prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "countersign_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "countersign_" + name, Help: help}, labels)
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		rotations: counter("secret_rotations_total", "New certificates served.", "secret"),
		failures:  counter("failures_total", "Failed attempts to get a certificate or roots.", "authority", "secret", "reason"),
		expired:   counter("secret_expirations_total", "Secrets that ended without a successor.", "secret"),
		names:     counter("secret_name_differs_total", "Certificates with another name than was asked for.", "secret"),
		roots:     gauge("authority_roots", "Roots served of an authority.", "authority"),
		starts:    counter("provider_starts_total", "Starts of a provider; all but the first are restarts.", "provider"),
		states:    gauge("provider_state", "1 for the state that a provider is in.", "provider", "state"),
		streams:   counter("stream_events_total", "What happened on SDS streams: opened, closed, pushed, acked, nacked.", "event"),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "countersign_refused_names_total", Help: "Names asked for that nobody configured, or not for this caller.",
		}),
	}
	m.registry.MustRegister(m.rotations, m.failures, m.expired, m.names, m.roots, m.starts, m.states, m.streams, m.refused,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, kind := range []xds.EventKind{xds.Opened, xds.Closed, xds.Pushed, xds.Acked, xds.Nacked} {
		m.streams.WithLabelValues(kind.String()) // there from the start, as 0
	}
	return m
}

// secret is told by the engine.
func (m *metrics) secret(e secret.Event) {
	switch e.Type {
	case secret.Rotated:
		m.rotations.WithLabelValues(e.Secret).Inc()
	case secret.Failed:
		m.failures.WithLabelValues(e.Authority, e.Secret, e.Reason).Inc()
	case secret.Expired:
		m.expired.WithLabelValues(e.Secret).Inc()
	case secret.NameDiffers:
		m.names.WithLabelValues(e.Secret).Inc()
	case secret.RootAdded:
		m.roots.WithLabelValues(e.Authority).Inc()
	case secret.RootRemoved:
		m.roots.WithLabelValues(e.Authority).Dec()
	}
}

// stream is told by the SDS server.
func (m *metrics) stream(e xds.Event[secret.Caller]) {
	if e.Kind == xds.Refused {
		m.refused.Add(float64(len(e.Names)))
		return
	}
	m.streams.WithLabelValues(e.Kind.String()).Inc()
}

// providerState is told by the plugin host.
func (m *metrics) providerState(s pluginhost.Status) {
	if s.State == pluginhost.Starting {
		m.starts.WithLabelValues(s.Name).Inc()
	}
	m.states.DeletePartialMatch(prometheus.Labels{"provider": s.Name})
	m.states.WithLabelValues(s.Name, string(s.State)).Set(1)
}

// watch adds what is read off the agent whenever somebody asks.
func (m *metrics) watch(a *agent.Agent) { m.registry.MustRegister(&held{a}) }

var (
	heldDesc    = prometheus.NewDesc("countersign_secret_held", "1 where the secret would be answered now.", []string{"secret"}, nil)
	expiryDesc  = prometheus.NewDesc("countersign_secret_expiry_timestamp_seconds", "When the held secret ends.", []string{"secret"}, nil)
	renewDesc   = prometheus.NewDesc("countersign_secret_renew_timestamp_seconds", "When the held certificate is renewed.", []string{"secret"}, nil)
	streamsDesc = prometheus.NewDesc("countersign_streams", "Open SDS streams and fetches.", nil, nil)
)

// held is a collector of the agent's present state.
type held struct{ agent *agent.Agent }

// Describe implements [prometheus.Collector].
func (h *held) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(h, to) }

// Collect implements [prometheus.Collector].
func (h *held) Collect(to chan<- prometheus.Metric) {
	value := func(desc *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	value(streamsDesc, float64(h.agent.Streams()))
	for _, s := range h.agent.Status() {
		isHeld := 0.0
		if s.Held {
			isHeld = 1
		}
		value(heldDesc, isHeld, s.Name)
		if s.Item == nil {
			continue
		}
		value(expiryDesc, float64(s.Item.NotAfter.Unix()), s.Name)
		if !s.Item.RenewAt.IsZero() {
			value(renewDesc, float64(s.Item.RenewAt.Unix()), s.Name)
		}
	}
}
