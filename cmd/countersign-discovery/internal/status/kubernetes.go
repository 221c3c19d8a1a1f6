package status

import (
	"github.com/countersign-dev/countersign/kubernetes/access"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

// Kubernetes has the statistics of Kubernetes secrets since the start. Names of secrets and
// callers are only in the log, each once.
type Kubernetes struct {
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
	Reviews Reviews `json:"reviews"`
}

// Reviews counts the access reviews since the start.
type Reviews struct {
	Allowed uint64 `json:"allowed"`
	Denied  uint64 `json:"denied"`
	Failed  uint64 `json:"failed"`
	// ServiceAccounts is the number of service accounts whose answer is cached now; Unsure is
	// for how many of them the API server gives no answer.
	ServiceAccounts int `json:"service_accounts"`
	Unsure          int `json:"unsure"`
}

// KubernetesOf returns the statistics.
func KubernetesOf(served secrets.Counts, asked access.Counts) *Kubernetes {
	c := &Kubernetes{
		Refused: map[secrets.Reason]uint64{}, Expired: served.Expired, Malformed: served.Malformed,
		Kept: served.Cached, KeptBytes: served.CachedBytes,
		Reviews: Reviews{Allowed: asked.Allowed, Denied: asked.Denied, Failed: asked.Failed, ServiceAccounts: asked.Known, Unsure: asked.Unsure},
	}
	for _, reason := range secrets.Reasons { // including those with a count of 0
		c.Refused[reason] = served.Refused[reason]
	}
	return c
}

// Row is one line of a table.
type Row struct {
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
func (c *Kubernetes) Rows() []Row {
	rows := []Row{
		{"cached objects", uint64(max(c.Kept, 0))}, {"bytes of cached objects", uint64(max(c.KeptBytes, 0))}, // #nosec G115 -- never negative
		{"expired objects, still served", c.Expired}, {"malformed objects", c.Malformed},
		{"access reviews: allowed", c.Reviews.Allowed}, {"access reviews: denied", c.Reviews.Denied}, {"access reviews: failed", c.Reviews.Failed},
		{"cached service accounts", uint64(max(c.Reviews.ServiceAccounts, 0))},                // #nosec G115 -- never negative
		{"service accounts without an API server's answer", uint64(max(c.Reviews.Unsure, 0))}, // #nosec G115 -- never negative
	}
	for _, reason := range secrets.Reasons {
		rows = append(rows, Row{whys[reason], c.Refused[reason]})
	}
	return rows
}
