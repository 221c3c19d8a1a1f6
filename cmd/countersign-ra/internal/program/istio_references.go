package program

import (
	"slices"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
)

// unknownReferences returns those of the current callers. It is not ok before all kubeconfigs were
// read.
func (d *door) unknownReferences() (all []status.UnknownReference, ok bool) {
	if d.of.clusters.Ready() != nil {
		return nil, false
	}
	return unknownReferencesOf(d.callers.now.Load(), d.of.clusters.Known), true
}

func unknownReferencesOf(c *config.Config, known func(id string) bool) (all []status.UnknownReference) {
	add := func(setting, id string) {
		if one := (status.UnknownReference{Setting: setting, Cluster: id}); !known(id) && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	for _, id := range c.Istio.Clusters {
		add("istio.clusters", id)
	}
	for _, proxy := range c.Proxies() {
		add("istio.node_proxies", proxy.Cluster)
	}
	return all
}

// reported are the unknown references that were logged.
type reported map[status.UnknownReference]bool

// fresh returns those that are new, and forgets those that are gone.
func (t reported) fresh(now []status.UnknownReference) (fresh []status.UnknownReference) {
	for one := range t {
		if !slices.Contains(now, one) {
			delete(t, one)
		}
	}
	for _, one := range now {
		if !t[one] {
			fresh = append(fresh, one)
		}
		t[one] = true
	}
	return fresh
}

// logUnknown logs each unknown reference once, until its cluster is known.
func (d *door) logUnknown(t reported) {
	now, ok := d.unknownReferences()
	if !ok {
		return
	}
	for _, one := range t.fresh(now) {
		d.of.log.Warn("a setting names a cluster that is not known; correct it, or add its kubeconfig", "setting", one.Setting, "cluster", one.Cluster)
	}
}
