package program

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
)

var (
	meshNamespacesDesc = desc("mesh_namespaces", "Namespaces of a mesh: those whose ConfigMap has the roots (current), those that lack some (lacking), and those of either where another client keeps writing (disputed).", "cluster", "state")
	meshLeftDesc       = desc("mesh_left_behind", "1 for each namespace that no new root waits for, as its ConfigMap could not be kept for an hour. A hundred namespaces of a cluster at most.", "cluster", "namespace")
	rootsLeftDesc      = desc("roots_left_behind", "1 for each cluster that no new root of an authority waits for, as its trust bundles or the ConfigMaps of the mesh have lacked roots for an hour.", "authority", "cluster", "publisher")
	istiodCurrentDesc  = desc("istiod_certificate_current", "1 if the Secret istiod-tls is as it should be.", "cluster")
	istiodExpiryDesc   = desc("istiod_certificate_expiry_timestamp_seconds", "When the certificate in the Secret istiod-tls ends.", "cluster")
)

// mostLeft bounds the namespaces of a cluster that are named: their owners choose the names.
const mostLeft = 100

// meshCollector collects what is written for a mesh.
type meshCollector struct{ *service }

// Describe implements [prometheus.Collector].
func (c meshCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{meshNamespacesDesc, meshLeftDesc, rootsLeftDesc, istiodCurrentDesc, istiodExpiryDesc} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. Only the leader has anything to collect.
func (c meshCollector) Collect(to chan<- prometheus.Metric) {
	t := c.session.Load()
	if t == nil {
		return
	}
	for _, p := range t.written.allLeft() {
		to <- prometheus.MustNewConstMetric(rootsLeftDesc, prometheus.GaugeValue, 1, p.authority, p.cluster, string(p.by))
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
	if r := m.Roots; r != nil {
		for _, namespace := range r.Left[:min(len(r.Left), mostLeft)] {
			gauge(meshLeftDesc, 1, cluster, namespace)
		}
	}
	if i := m.Istiod; i != nil {
		gauge(istiodCurrentDesc, number(i.Error == ""), cluster)
		if !i.NotAfter.IsZero() {
			gauge(istiodExpiryDesc, float64(i.NotAfter.Unix()), cluster)
		}
	}
}
