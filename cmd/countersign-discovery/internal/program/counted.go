package program

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

// counted has the statistics of Kubernetes secrets since the start. Names of secrets and
// callers are only in the log, each once.
type counted struct {
	// Refused counts refused resources, by reason.
	Refused map[secrets.Reason]uint64 `json:"refused"`
	// Expired objects are still served, Malformed ones cannot be.
	Expired   uint64 `json:"expired"`
	Malformed uint64 `json:"malformed"`
	// Kept is the number of resources cached now, malformed ones included; KeptBytes is
	// their size.
	Kept      int `json:"kept"`
	KeptBytes int `json:"kept_bytes"`
	// Reviews counts the API servers' answers to access reviews.
	Reviews reviews `json:"reviews"`
}

type reviews struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	Failed  uint64 `json:"failed"`
	// ServiceAccounts is the number of service accounts whose answer is cached now; Unsure is
	// for how many of them the API server gives no answer.
	ServiceAccounts int `json:"service_accounts"`
	Unsure          int `json:"unsure"`
}

func (k *clusters) counted() *counted { return countedOf(k.secrets.Counts(), k.access.Counts()) }

func countedOf(served secrets.Counts, asked access.Counts) *counted {
	c := &counted{
		Refused: map[secrets.Reason]uint64{}, Expired: served.Expired, Malformed: served.Malformed,
		Kept: served.Cached, KeptBytes: served.CachedBytes,
		Reviews: reviews{Allowed: asked.Allowed, Denied: asked.Denied, Failed: asked.Failed, ServiceAccounts: asked.Known, Unsure: asked.Unsure},
	}
	for _, reason := range secrets.Reasons { // including those with a count of 0
		c.Refused[reason] = served.Refused[reason]
	}
	return c
}

// row is one line of a table.
type row struct {
	Name  string
	Count uint64
}

// whys describes the reasons.
var whys = map[secrets.Reason]string{
	secrets.BadName: "refused: invalid name", secrets.NoIdentity: "refused: the caller has no service account or no cluster",
	secrets.Foreign: "refused: other namespace", secrets.NoRight: "refused: the caller may not list secrets",
	secrets.NoCluster: "refused: the caller's cluster was removed", secrets.Missing: "refused: no such object",
	secrets.Malformed: "refused: the object is malformed",
}

// Rows returns the statistics with their descriptions.
func (c *counted) Rows() []row {
	rows := []row{
		{"cached objects", uint64(max(c.Kept, 0))}, {"bytes of cached objects", uint64(max(c.KeptBytes, 0))}, // #nosec G115 -- never negative
		{"expired objects, still served", c.Expired}, {"malformed objects", c.Malformed},
		{"access reviews: allowed", c.Reviews.Allowed}, {"access reviews: denied", c.Reviews.Denied}, {"access reviews: failed", c.Reviews.Failed},
		{"cached service accounts", uint64(max(c.Reviews.ServiceAccounts, 0))},                // #nosec G115 -- never negative
		{"service accounts without an API server's answer", uint64(max(c.Reviews.Unsure, 0))}, // #nosec G115 -- never negative
	}
	for _, reason := range secrets.Reasons {
		rows = append(rows, row{whys[reason], c.Refused[reason]})
	}
	return rows
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

func (g gatherer) kubernetes(c *counted) {
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
