package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// configMetrics count reloads of the configuration.
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
		taken:   gauge("success_timestamp_seconds", "When the configuration was last applied, at startup or by a reload."),
		refused: gauge("refused", "1 while the current configuration file is rejected and the previous configuration stays in effect."),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "countersign_config_reload_failures_total", Help: "Reloads whose configuration was rejected.",
		}),
	}
	r.MustRegister(m.taken, m.refused, m.failures)
	m.taken.SetToCurrentTime()
	return m
}

// Reloaded records the result of a reload: err is why it was rejected, else restart the settings
// that wait for a restart.
func (m *Metrics) Reloaded(restart []string, err error) {
	m.recorder.Configuration(time.Now(), restart, err)
	if err != nil {
		m.config.failures.Inc()
		m.config.refused.Set(1)
		return
	}
	m.config.refused.Set(0)
	m.config.taken.SetToCurrentTime()
}
