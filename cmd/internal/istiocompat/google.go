package istiocompat

import (
	"encoding/json"
	"strings"
)

// meshCA is the google provider's "protocol" for a server that speaks Mesh CA's protocol.
const meshCA = "meshca"

// clusterVariable names the cluster, which determines the zone of Mesh CA.
const clusterVariable = "GKE_CLUSTER_URL"

// google reads what concerns Google's CAs: where Mesh CA is, and where the workload's token
// comes from and under which issuer Google accepts it.
func (t *translator) google() {
	cluster := t.set[clusterVariable]
	if t.choice.Provider != google {
		if cluster != "" {
			t.warn("%s has no effect: it is for Google's CAs, and another CA was chosen", clusterVariable)
		}
		return
	}
	before := len(t.found)
	if cluster != "" && t.setting("protocol") == meshCA {
		t.found = append(t.found, t.choice.setting("location", cluster, clusterVariable))
	}
	switch byToken := t.byToken(); {
	case t.set[fetcherVariable] == gceFetcher && !byToken:
		t.warn("%s has no effect: the entry %s has credentials of its own", fetcherVariable, t.choice.Entry)
	case t.set[fetcherVariable] == gceFetcher:
		// Istio's agent requests a token for its trust domain.
		t.add(t.choice.path("token.gce.audience"), t.domain, fetcherVariable)
		t.issuer(gceFetcher, fetcherVariable)
	case strings.HasPrefix(cluster, "https://") && byToken:
		t.issuer(cluster, clusterVariable)
	}
	if cluster != "" && len(t.found) == before {
		t.warn("%s has no effect: it is for Mesh CA and for token exchange", clusterVariable)
	}
}

// issuer has the token exchanged as one of that issuer, as Istio's agent does with workload
// identity, unless the entry configures the exchange.
func (t *translator) issuer(name, variable string) {
	if t.setting("exchange") != nil {
		return
	}
	audience := "identitynamespace:" + t.domain + ":" + name
	t.found = append(t.found, t.choice.setting("exchange", map[string]string{"audience": audience}, variable))
}

// byToken reports whether the chosen entry authenticates, or can authenticate, by the token
// of each request.
func (t *translator) byToken() bool {
	credentials := t.setting("credentials")
	return credentials == "token" || credentials == nil && t.setting("credentials_file") == nil
}

// setting returns a setting of the chosen entry, by the variables or as given; nil if unset.
func (t *translator) setting(name string) any {
	for _, a := range t.found {
		var value any
		if a.Path == t.choice.path("settings."+name) && json.Unmarshal([]byte(a.Value), &value) == nil {
			return value
		}
	}
	for _, entry := range t.given.Providers {
		if entry.Name == t.choice.Entry {
			return entry.Settings[name]
		}
	}
	return nil
}
