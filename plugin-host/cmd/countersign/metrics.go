package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/status"
	"github.com/countersign-dev/countersign/sdk/filesecret/output"
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
	streams   *prometheus.CounterVec
	outputs   *prometheus.CounterVec
	upstream  *prometheus.CounterVec // of a gateway
	restored  *prometheus.CounterVec
	state     *prometheus.CounterVec
	refused   prometheus.Counter
	config    configMetrics
	recorder  *status.Recorder // for the page
}

func newMetrics(p *providers) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "countersign_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "countersign_" + name, Help: help}, labels)
	}
	m := &metrics{
		recorder:  &p.recorder,
		registry:  prometheus.NewRegistry(),
		rotations: counter("secret_rotations_total", "New certificates served, by who signed them.", "secret", "authority"),
		failures:  counter("failures_total", "Failed attempts to get a certificate or roots.", "authority", "secret", "reason"),
		expired:   counter("secret_expirations_total", "Secrets that ended without a successor.", "secret"),
		names:     counter("secret_name_differs_total", "Certificates with another name than was asked for.", "secret"),
		roots:     gauge("authority_roots", "Roots served of an authority.", "authority"),
		streams:   counter("stream_events_total", "What happened on SDS streams: opened, closed, pushed, acked, nacked.", "event"),
		outputs:   counter("output_events_total", "What happened to written files: written, write-failed, reloaded, reload-failed.", "output", "event"),
		upstream:  counter("gateway_events_total", "What happened with the discovery service of a gateway: connected, failed, taken, refused, removed.", "event"),
		restored:  counter("secret_restored_total", "Certificates of the last run that are served again.", "secret", "authority"),
		state:     counter("state_failures_total", "What is kept over a restart and could not be: reason is store, load, refused or key.", "reason"),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "countersign_refused_names_total", Help: "Names asked for that nobody configured, or not for this caller.",
		}),
	}
	m.config = newConfigMetrics(m.registry)
	m.registry.MustRegister(m.rotations, m.failures, m.expired, m.names, m.roots, m.streams, m.outputs, m.upstream, m.restored, m.state, m.refused, supervised{p},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, kind := range []xds.EventKind{xds.Opened, xds.Closed, xds.Pushed, xds.Acked, xds.Nacked} {
		m.streams.WithLabelValues(kind.String()) // there from the start, as 0
	}
	for _, reason := range []string{"store", "load", "refused", noKey} {
		m.state.WithLabelValues(reason) // so, too
	}
	return m
}

// secret is told by the engine.
func (m *metrics) secret(e secret.Event) {
	m.recorder.Secret(e)
	switch e.Type {
	case secret.Rotated:
		m.rotations.WithLabelValues(e.Secret, e.Authority).Inc()
	case secret.Failed:
		m.failures.WithLabelValues(e.Authority, e.Secret, e.Reason).Inc()
	case secret.Expired:
		m.expired.WithLabelValues(e.Secret).Inc()
	case secret.NameDiffers:
		m.names.WithLabelValues(e.Secret).Inc()
	case secret.Restored:
		m.restored.WithLabelValues(e.Secret, e.Authority).Inc()
	case secret.StateFailed:
		m.state.WithLabelValues(e.Reason).Inc()
	case secret.RootAdded:
		m.roots.WithLabelValues(e.Authority).Inc()
	case secret.RootRemoved:
		m.roots.WithLabelValues(e.Authority).Dec()
	}
}

// output is told by the writers of files.
func (m *metrics) output(e output.Event) {
	m.outputs.WithLabelValues(e.Output, string(e.Type)).Inc()
}

// stream is told by the SDS server.
func (m *metrics) stream(e xds.Event[secret.Caller]) {
	m.recorder.Stream(e)
	if e.Kind == xds.Refused {
		m.refused.Add(float64(len(e.Names)))
		return
	}
	m.streams.WithLabelValues(e.Kind.String()).Inc()
}
