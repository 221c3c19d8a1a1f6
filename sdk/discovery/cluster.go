package discovery

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// clusterOf returns the cluster that a caller is in: the one whose API server has
// vouched for it, else the one that it claims if its trust domain may. A claim that may
// not be made leaves the caller without a cluster, as another than it named would answer
// a question that it did not ask.
func (c Config) clusterOf(id authn.Identity, claim string) string {
	if id.Cluster != "" {
		return id.Cluster
	}
	may := c.Clusters[trustDomainOf(id)]
	switch {
	case len(may) == 0:
		may = []string{c.LocalCluster}
	case claim == "" && !slices.Contains(may, c.LocalCluster):
		return may[0]
	}
	if claim == "" {
		return c.LocalCluster
	}
	if slices.Contains(may, claim) {
		return claim
	}
	return ""
}

// trustDomainOf returns that of the SPIFFE ID, empty where there is none.
func trustDomainOf(id authn.Identity) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(id.SPIFFEID, "spiffe://"), "/")
	return domain
}
