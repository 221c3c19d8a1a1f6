package program

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/status"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
)

func (k *clusters) counted() *status.Kubernetes {
	return status.KubernetesOf(k.secrets.Counts(), k.access.Counts())
}

var (
	clusterDesc   = desc("cluster_state", "1 for the state a cluster is in.", "cluster", "state")
	servingDesc   = desc("cluster_serving", "1 if the objects of a cluster are known, possibly through an earlier kubeconfig.", "cluster")
	objectsDesc   = desc("cluster_secrets", "Secrets held for a cluster.", "cluster")
	accessDesc    = desc("access_reviews_total", "Access reviews by API servers, by answer: allowed, denied, failed.", "answer")
	knowDesc      = desc("access_service_accounts", "Service accounts whose access review is cached.")
	unsureDesc    = desc("access_unsure_service_accounts", "Service accounts for which the API server gives no answer now whether they may read secrets.")
	leftOutDesc   = desc("refused_secrets_total", "Refused Kubernetes secrets, by reason.", "reason")
	endedObjDesc  = desc("expired_secrets_total", "Versions of secrets that had expired; they are still served.")
	badObjDesc    = desc("malformed_secrets_total", "Versions of secrets that cannot be served.")
	keptDesc      = desc("kept_secrets", "Cached objects.")
	keptBytesDesc = desc("kept_secrets_bytes", "Size of the cached objects.")
)

func (k *clusters) describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		clusterDesc, servingDesc, objectsDesc, accessDesc, knowDesc, unsureDesc, leftOutDesc, endedObjDesc, badObjDesc, keptDesc, keptBytesDesc, watchedDesc, firstEndDesc,
	} {
		to <- d
	}
}

func (k *clusters) collect(g gatherer) {
	if k == nil {
		return
	}
	for _, s := range k.Status() {
		for _, state := range fleet.States {
			g.gauge(clusterDesc, number(s.State == state), s.ID, string(state))
		}
		g.gauge(servingDesc, number(s.Serving), s.ID)
		g.gauge(objectsDesc, float64(s.Secrets), s.ID)
	}
	g.kubernetes(k.counted())
	g.watching(k.watching())
}

func (g gatherer) kubernetes(c *status.Kubernetes) {
	g.counter(accessDesc, c.Reviews.Allowed, "allowed")
	g.counter(accessDesc, c.Reviews.Denied, "denied")
	g.counter(accessDesc, c.Reviews.Failed, "failed")
	g.gauge(knowDesc, float64(c.Reviews.ServiceAccounts))
	g.gauge(unsureDesc, float64(c.Reviews.Unsure))
	for reason, n := range c.Refused {
		g.counter(leftOutDesc, n, string(reason))
	}
	g.counter(endedObjDesc, c.Expired)
	g.counter(badObjDesc, c.Malformed)
	g.gauge(keptDesc, float64(c.Kept))
	g.gauge(keptBytesDesc, float64(c.KeptBytes))
}
