package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// configMetrics tell whether the agent runs with what its file says.
type configMetrics struct {
	taken    prometheus.Gauge
	failures prometheus.Counter
	refused  prometheus.Gauge
}

func newConfigMetrics(r *prometheus.Registry) configMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "countersign_config_reload_" + name, Help: help})
	}
	m := configMetrics{
		taken:   gauge("success_timestamp_seconds", "When the configuration was taken over the last time, at the start or later."),
		refused: gauge("refused", "1 where the configuration as it is now was refused, and the one before runs on."),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "countersign_config_reload_failures_total", Help: "Changed configurations that were refused.",
		}),
	}
	r.MustRegister(m.taken, m.refused, m.failures)
	m.taken.SetToCurrentTime()
	return m
}

// Reloaded is told the outcome of a reload; err is why it was refused.
func (m *Metrics) Reloaded(err error) {
	m.recorder.Configuration(time.Now(), err)
	if err != nil {
		m.config.failures.Inc()
		m.config.refused.Set(1)
		return
	}
	m.config.refused.Set(0)
	m.config.taken.SetToCurrentTime()
}
