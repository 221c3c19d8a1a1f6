package program

import (
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// written gathers in which clusters roots are published. A root counts as published when all
// clusters have it: one that is away delays new roots, as its pods verify the others'. It does no
// longer once a cluster is known to lack it: it was removed there, or the cluster is new. What a
// cluster that cannot be reached has now is not known, and changes nothing.
type written struct {
	publish func(authority string, roots *pki.Bundle) // does not block

	order sync.Mutex // held during the call, so that the last call has the current roots

	mu          sync.Mutex
	ids         []string                          // of all clusters
	byAuthority map[string]map[string]*pki.Bundle // then by cluster
}

func newWritten(publish func(string, *pki.Bundle)) *written {
	return &written{publish: publish, byAuthority: map[string]map[string]*pki.Bundle{}}
}

// note records which roots a cluster has.
func (w *written) note(cluster, authority string, roots *pki.Bundle) {
	w.order.Lock()
	defer w.order.Unlock()
	w.mu.Lock()
	if w.byAuthority[authority] == nil {
		w.byAuthority[authority] = map[string]*pki.Bundle{}
	}
	w.byAuthority[authority][cluster] = roots
	common, known := w.common(authority)
	w.mu.Unlock()
	if known {
		w.publish(authority, common)
	}
}

// forget drops what is known of a cluster that is reached in another way now.
func (w *written) forget(cluster string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, byCluster := range w.byAuthority {
		delete(byCluster, cluster)
	}
}

// members sets which clusters there are.
func (w *written) members(ids []string) {
	w.order.Lock()
	defer w.order.Unlock()
	w.mu.Lock()
	changed := !slices.Equal(w.ids, ids)
	w.ids = ids
	common := map[string]*pki.Bundle{}
	for authority := range w.byAuthority {
		if roots, known := w.common(authority); known && changed {
			common[authority] = roots
		}
	}
	w.mu.Unlock()
	for authority, roots := range common {
		w.publish(authority, roots)
	}
}

// common returns the roots that all clusters have, unless that is not known. The lock is held.
func (w *written) common(authority string) (common *pki.Bundle, known bool) {
	for i, id := range w.ids {
		roots, known := w.byAuthority[authority][id]
		if !known {
			return nil, false
		}
		if i == 0 {
			common = roots
		}
		common = common.Filter(roots.Contains)
	}
	return common, len(w.ids) > 0
}
