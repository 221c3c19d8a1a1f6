// Package metrics exports the metrics of a running agent to Prometheus. The agent calls [New]
// and passes the methods of the result to the SDK as hooks; they are safe for concurrent use.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/output"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// NoKey is the reason of a [secret.StateFailed] that is this program's own.
const NoKey = status.NoStateKey

// Metrics counts the events of the sdk's hooks. Labels come from the configuration
// and from fixed lists, never from a client.
type Metrics struct {
	Registry  *prometheus.Registry // of all of them
	rotations *prometheus.CounterVec
	failures  *prometheus.CounterVec
	expired   *prometheus.CounterVec
	names     *prometheus.CounterVec
	cut       *prometheus.CounterVec
	roots     *prometheus.GaugeVec
	streams   map[xds.EventKind]prometheus.Counter
	outputs   *prometheus.CounterVec
	upstream  *prometheus.CounterVec // of a gateway
	restored  *prometheus.CounterVec
	state     *prometheus.CounterVec
	refused   prometheus.Counter
	config    configMetrics
	recorder  *status.Recorder // for the page
}

// New makes those of an agent with these providers. The recorder gets the same events
// for the page.
func New(recorder *status.Recorder, providers func() map[string]*pluginhost.Provider) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "countersign_" + name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "countersign_" + name, Help: help}, labels)
	}
	m := &Metrics{
		recorder:  recorder,
		Registry:  prometheus.NewRegistry(),
		rotations: counter("secret_rotations_total", "New certificates served, by CA.", "secret", "authority"),
		failures:  counter("failures_total", "Failed attempts to get a certificate or roots.", "authority", "secret", "reason"),
		expired:   counter("secret_expirations_total", "Secrets that expired without a successor.", "secret"),
		names:     counter("secret_name_differs_total", "Certificates with another name than requested.", "secret"),
		cut:       counter("secret_cut_short_total", "Certificates that end early, as their authority ends before they would.", "secret"),
		roots:     gauge("authority_roots", "Roots of an authority that are served.", "authority"),
		streams:   map[xds.EventKind]prometheus.Counter{},
		outputs:   counter("output_events_total", "Events of written files: written, write-failed, reloaded, reload-failed.", "output", "event"),
		upstream:  counter("gateway_events_total", "Events of a gateway's discovery service: connected, failed, taken, refused, removed.", "event"),
		restored:  counter("secret_restored_total", "Certificates restored from the last run.", "secret", "authority"),
		state:     counter("state_failures_total", "Failures to keep or restore state: store, load, refused or key.", "reason"),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "countersign_refused_names_total", Help: "Requested names that are not configured, or not for this caller.",
		}),
	}
	m.config = newConfigMetrics(m.Registry)
	streams := counter("stream_events_total", "Events on SDS streams: opened, closed, pushed, acked, nacked.", "event")
	m.Registry.MustRegister(m.rotations, m.failures, m.expired, m.names, m.cut, m.roots, streams, m.outputs, m.upstream, m.restored, m.state, m.refused, supervised(providers))
	for _, kind := range []xds.EventKind{xds.Opened, xds.Closed, xds.Pushed, xds.Acked, xds.Nacked} {
		m.streams[kind] = streams.WithLabelValues(kind.String()) // exported as 0 from the start
	}
	for _, reason := range []string{"store", "load", "refused", NoKey} {
		m.state.WithLabelValues(reason) // as above
	}
	return m
}

// Secret counts an event of the engine.
func (m *Metrics) Secret(e secret.Event) {
	m.recorder.Secret(e)
	switch e.Kind {
	case secret.Rotated:
		m.rotations.WithLabelValues(e.Secret, e.Authority).Inc()
	case secret.Failed:
		m.failures.WithLabelValues(e.Authority, e.Secret, e.Reason).Inc()
	case secret.Expired:
		m.expired.WithLabelValues(e.Secret).Inc()
	case secret.NameDiffers:
		m.names.WithLabelValues(e.Secret).Inc()
	case secret.CutShort:
		m.cut.WithLabelValues(e.Secret).Inc()
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

// Output counts an event of written files.
func (m *Metrics) Output(e output.Event) {
	m.recorder.Output(e)
	m.outputs.WithLabelValues(e.Output, string(e.Type)).Inc()
}

// Stream counts an event of the SDS server.
func (m *Metrics) Stream(e xds.Event[secret.Caller]) {
	m.recorder.Stream(e)
	if e.Kind == xds.Refused {
		m.refused.Add(float64(len(e.Client.Names)))
	}
	if counter := m.streams[e.Kind]; counter != nil {
		counter.Inc()
	}
}
