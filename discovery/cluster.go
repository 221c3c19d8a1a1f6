package discovery

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/authn"
)

// clusterOf returns the caller's cluster: the one whose API server vouched for it, else
// the one it claims if its token's issuer or its trust domain may. A disallowed claim leaves the caller
// without a cluster, because substituting another would answer a question it did not
// ask.
func (c Config) clusterOf(id authn.Identity, claim string) string {
	if id.Cluster != "" {
		return id.Cluster
	}
	may := c.Clusters[trustDomainOf(id)]
	if of := c.IssuerClusters[id.Issuer]; id.Kind == authn.ByJWT && len(of) > 0 {
		may = of
	}
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

// trustDomainOf returns the trust domain of the SPIFFE ID, or "" if there is none.
func trustDomainOf(id authn.Identity) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(id.SPIFFEID, "spiffe://"), "/")
	return domain
}
