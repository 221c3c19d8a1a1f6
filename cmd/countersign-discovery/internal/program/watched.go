package program

import (
	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/status"
	"github.com/countersign-dev/countersign/kubernetes/secrets"
)

// watching includes known clusters of which nothing is watched.
func (k *clusters) watching() *status.Watched {
	var ids []string
	for _, s := range k.Status() {
		ids = append(ids, s.ID)
	}
	return status.WatchedOf(ids, k.secrets.Watched())
}

var (
	watchedDesc = desc("watched_secrets", "Kubernetes certificates and CAs that clients watch, by current state: valid, ending (the last sixth of the lifetime, a week at most), expired, malformed.",
		"cluster", "kind", "state")
	firstEndDesc = desc("watched_secrets_first_expiry_timestamp_seconds", "Earliest expiry among the unexpired watched secrets.", "cluster", "kind")
)

func (g gatherer) watching(w *status.Watched) {
	for _, c := range w.Counts {
		for _, state := range secrets.States {
			g.gauge(watchedDesc, float64(*c.Of(state)), c.Cluster, c.Kind, string(state))
		}
		if !c.FirstExpiry.IsZero() {
			g.gauge(firstEndDesc, float64(c.FirstExpiry.Unix()), c.Cluster, c.Kind)
		}
	}
}
