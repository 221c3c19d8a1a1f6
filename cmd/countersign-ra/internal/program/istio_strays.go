package program

import (
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
)

// stray is a cluster that a setting names and nobody knows: its name is misspelled, or its
// kubeconfig is still to come. So it is no wrong setting, and must not pass in silence either.
type stray struct {
	Setting string `json:"setting"`
	Cluster string `json:"cluster"`
}

// strays returns those of the callers in force. It is not ok before all kubeconfigs were read.
func (d *door) strays() (all []stray, ok bool) {
	if d.of.clusters.Ready() != nil {
		return nil, false
	}
	return straysOf(d.callers.now.Load(), d.of.clusters.Known), true
}

func straysOf(c *config.Config, known func(id string) bool) (all []stray) {
	add := func(setting, id string) {
		if one := (stray{setting, id}); !known(id) && !slices.Contains(all, one) {
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

// told are the strays that the log has.
type told map[stray]bool

// fresh returns those that are new, and forgets those that are gone.
func (t told) fresh(now []stray) (fresh []stray) {
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

// tell logs each stray once for as long as it is one.
func (d *door) tell(t told) {
	now, ok := d.strays()
	if !ok {
		return
	}
	for _, one := range t.fresh(now) {
		d.of.log.Warn("a setting names a cluster that is not known; correct it, or add its kubeconfig", "setting", one.Setting, "cluster", one.Cluster)
	}
}

func (s stray) trouble() trouble {
	return trouble{
		Grade: fair, What: fmt.Sprintf("%s names %s, and no such cluster is known", s.Setting, s.Cluster),
		Do: "This entry matches no known cluster. Correct the name, or add the cluster's kubeconfig: it counts at once.",
	}
}
