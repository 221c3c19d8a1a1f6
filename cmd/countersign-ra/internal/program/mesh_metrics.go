package program

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
)

var (
	meshNamespacesDesc = desc("mesh_namespaces", "Namespaces of a mesh: those whose ConfigMap has the roots (current), those that lack some (lacking), and those of either where another client keeps writing (disputed).", "cluster", "state")
	istiodCurrentDesc  = desc("istiod_certificate_current", "1 if the Secret istiod-tls is as it should be.", "cluster")
	istiodExpiryDesc   = desc("istiod_certificate_expiry_timestamp_seconds", "When the certificate in the Secret istiod-tls ends.", "cluster")
)

// meshCollector collects what is written for a mesh.
type meshCollector struct{ *service }

// Describe implements [prometheus.Collector].
func (c meshCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{meshNamespacesDesc, istiodCurrentDesc, istiodExpiryDesc} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. Only the leader has anything to collect.
func (c meshCollector) Collect(to chan<- prometheus.Metric) {
	t := c.session.Load()
	if t == nil {
		return
	}
	for _, o := range t.all() {
		if m := o.mesh.report(); m != nil {
			gaugeMesh(o.cluster.ID(), m, func(d *prometheus.Desc, v float64, labels ...string) {
				to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
			})
		}
	}
}

func gaugeMesh(cluster string, m *status.Mesh, gauge gauge) {
	if r := m.Roots; r != nil {
		for state, n := range map[string]int{"current": r.Namespaces - r.Lacking, "lacking": r.Lacking, "disputed": r.Disputed} {
			gauge(meshNamespacesDesc, float64(n), cluster, state)
		}
	}
	if i := m.Istiod; i != nil {
		gauge(istiodCurrentDesc, number(i.Error == ""), cluster)
		if !i.NotAfter.IsZero() {
			gauge(istiodExpiryDesc, float64(i.NotAfter.Unix()), cluster)
		}
	}
}
