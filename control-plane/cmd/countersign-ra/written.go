package main

import (
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// written gathers in which clusters roots are published. A root counts as published when all
// clusters have it: one that is away delays new roots, as its pods verify the others'.
type written struct {
	publish func(authority string, roots *pki.Bundle)

	mu          sync.Mutex
	ids         []string                          // of all clusters
	byAuthority map[string]map[string]*pki.Bundle // then by cluster
}

func newWritten(publish func(string, *pki.Bundle)) *written {
	return &written{publish: publish, byAuthority: map[string]map[string]*pki.Bundle{}}
}

// note records which roots a cluster has.
func (w *written) note(cluster, authority string, roots *pki.Bundle) {
	w.mu.Lock()
	if w.byAuthority[authority] == nil {
		w.byAuthority[authority] = map[string]*pki.Bundle{}
	}
	w.byAuthority[authority][cluster] = roots
	common := w.common(authority)
	w.mu.Unlock()
	w.tell(authority, common)
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
	w.mu.Lock()
	changed := !slices.Equal(w.ids, ids)
	w.ids = ids
	common := map[string]*pki.Bundle{}
	for authority := range w.byAuthority {
		common[authority] = w.common(authority)
	}
	w.mu.Unlock()
	if changed {
		for authority, roots := range common {
			w.tell(authority, roots)
		}
	}
}

func (w *written) tell(authority string, roots *pki.Bundle) {
	if roots.Len() > 0 {
		w.publish(authority, roots)
	}
}

// common returns the roots that all clusters have; nil if one has none. The lock is held.
func (w *written) common(authority string) (common *pki.Bundle) {
	for i, id := range w.ids {
		roots := w.byAuthority[authority][id]
		if i == 0 {
			common = roots
		}
		common = common.Filter(roots.Contains)
	}
	return common
}
