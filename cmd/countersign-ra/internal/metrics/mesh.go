package metrics

import (
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
