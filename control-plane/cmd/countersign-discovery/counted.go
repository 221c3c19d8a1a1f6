package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/access"
	"github.com/countersign-dev/countersign/control-plane/kubernetes/fleet"
	"github.com/countersign-dev/countersign/control-plane/kubernetes/secrets"
)

// counted is what has been done with Kubernetes' secrets since the start. Names of
// secrets and callers are in the log, where each is said once.
type counted struct {
	// Refused are answers that something is not to be had, by reason.
	Refused map[secrets.Reason]uint64 `json:"refused"`
	// Expired were served all the same, Malformed cannot be.
	Expired   uint64 `json:"expired"`
	Malformed uint64 `json:"malformed"`
	// Kept are the objects that are read already, malformed ones too, now; KeptBytes is
	// the size of what is made of them.
	Kept      int `json:"kept"`
	KeptBytes int `json:"kept_bytes"`
	// Reviews are answers of API servers to who may read secrets.
	Reviews reviews `json:"reviews"`
}

type reviews struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	Failed  uint64 `json:"failed"`
	// ServiceAccounts are those that an answer is kept of, now; Unsure those of them that
	// their API server cannot tell of.
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
	for _, reason := range secrets.Reasons { // there from the start, as 0
		c.Refused[reason] = served.Refused[reason]
	}
	return c
}

// row is one line for people.
type row struct {
	Name  string
	Count uint64
}

// whys are the reasons of a refusal in words.
var whys = map[secrets.Reason]string{
	secrets.BadName: "refused: no name of a secret", secrets.NoIdentity: "refused: the caller has no service account or no cluster",
	secrets.Foreign: "refused: of another namespace", secrets.NoRight: "refused: the caller may not list secrets",
	secrets.NoCluster: "refused: the caller's cluster was removed", secrets.Missing: "refused: there is no such object",
	secrets.Malformed: "refused: the object is malformed",
}

// Rows are the counts in words.
func (c *counted) Rows() []row {
	rows := []row{
		{"objects kept", uint64(max(c.Kept, 0))}, {"bytes of these", uint64(max(c.KeptBytes, 0))}, // #nosec G115 -- never negative
		{"objects served though expired", c.Expired}, {"objects that are malformed", c.Malformed},
		{"reviews that allowed", c.Reviews.Allowed}, {"reviews that denied", c.Reviews.Denied}, {"reviews that failed", c.Reviews.Failed},
		{"service accounts known", uint64(max(c.Reviews.ServiceAccounts, 0))}, {"of these, API servers cannot tell of", uint64(max(c.Reviews.Unsure, 0))}, // #nosec G115 -- never negative
	}
	for _, reason := range secrets.Reasons {
		rows = append(rows, row{whys[reason], c.Refused[reason]})
	}
	return rows
}

var (
	clusterDesc   = desc("cluster_state", "1 for the state that a cluster is in.", "cluster", "state")
	servingDesc   = desc("cluster_serving", "1 where the objects of a cluster are known, be it by the kubeconfig before.", "cluster")
	objectsDesc   = desc("cluster_secrets", "Secrets held of a cluster.", "cluster")
	accessDesc    = desc("access_reviews_total", "Answers of API servers to who may read secrets: allowed, denied, failed.", "answer")
	knowDesc      = desc("access_service_accounts", "Service accounts that an answer of an API server is kept of.")
	unsureDesc    = desc("access_unsure_service_accounts", "Those of which the API server cannot tell now whether they may read secrets.")
	leftOutDesc   = desc("refused_secrets_total", "Answers that a secret of Kubernetes is not to be had, by reason.", "reason")
	endedObjDesc  = desc("expired_secrets_total", "Versions of secrets that were found expired; they are served all the same.")
	badObjDesc    = desc("malformed_secrets_total", "Versions of secrets that have nothing that can be served.")
	keptDesc      = desc("kept_secrets", "Objects that are read already.")
	keptBytesDesc = desc("kept_secrets_bytes", "The size of what is made of the objects that are read already.")
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
		for _, state := range []fleet.State{fleet.Connecting, fleet.Synced, fleet.Failed} {
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
