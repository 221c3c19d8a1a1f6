package config

import (
	"encoding/json"
	"slices"
	"strings"
)

// meshCA is what the google provider's setting "protocol" says of a server that speaks
// Mesh CA's protocol.
const meshCA = "meshca"

// clusterVariable names the cluster, and so the zone that Mesh CA is asked in.
const clusterVariable = "GKE_CLUSTER_URL"

// jwtType is what a workload's token is, in the words of RFC 8693.
const jwtType = "urn:ietf:params:oauth:token-type:jwt"

// isMeshCA tells whether an entry is of a server that takes the workload's token.
func isMeshCA(entry *Provider) bool {
	return entry.binary() == googleProvider && entry.Settings["protocol"] == meshCA
}

// exchangesItself tells whether an entry's provider is told how to exchange the
// workload's token.
func exchangesItself(entry *Provider) bool {
	return entry.binary() == googleProvider && entry.Settings["exchange"] != nil
}

// completeExchange has a provider that knows how to exchange tokens do it, after
// whatever else is done with them.
func completeExchange(entry *Provider) {
	steps := entry.Token.Exchange
	if !exchangesItself(entry) || slices.ContainsFunc(steps, func(e Exchange) bool { return e.Provider }) {
		return
	}
	step := Exchange{Provider: true, SubjectType: jwtType}
	if n := len(steps); n > 0 && steps[n-1].RequestedType != "" {
		step.SubjectType = steps[n-1].RequestedType
	}
	entry.Token.Exchange = append(slices.Clip(steps), step)
}

// google says what the variables say of Google's authorities: where Mesh CA is asked,
// and where the workload's token comes from and who Google knows as its issuer.
func (e *istio) google(configured *Config) {
	cluster := e.set[clusterVariable]
	if e.choice.Provider != googleProvider {
		if cluster != "" {
			e.warn("%s has no effect: it is about Google's authorities, and another was chosen", clusterVariable)
		}
		return
	}
	before := len(e.found)
	if cluster != "" && e.told("protocol", configured) == meshCA {
		e.found = append(e.found, e.choice.setting("location", cluster, clusterVariable))
	}
	switch byToken := e.byToken(configured); {
	case e.set[fetcherVariable] == gceFetcher && !byToken:
		e.warn("%s has no effect: the entry %s has credentials of its own", fetcherVariable, e.choice.Entry)
	case e.set[fetcherVariable] == gceFetcher:
		// Istio's agent asks for a token for its trust domain.
		e.found = append(e.found, Assignment{"providers." + e.choice.Entry + ".token.gce.audience", e.domain, fetcherVariable})
		e.issuer(configured, gceFetcher, fetcherVariable)
	case strings.HasPrefix(cluster, "https://") && byToken:
		e.issuer(configured, cluster, clusterVariable)
	}
	if cluster != "" && len(e.found) == before {
		e.warn("%s has no effect: it is about Mesh CA, and about tokens that are exchanged", clusterVariable)
	}
}

// issuer has the token exchanged as one of that issuer's, as Istio's agent does it where
// there is workload identity, unless the entry says how.
func (e *istio) issuer(configured *Config, name, variable string) {
	if e.told("exchange", configured) != nil {
		return
	}
	audience := "identitynamespace:" + e.domain + ":" + name
	e.found = append(e.found, e.choice.setting("exchange", map[string]string{"audience": audience}, variable))
}

// byToken tells whether the chosen entry's credential is, or can be, the token of each
// request.
func (e *istio) byToken(configured *Config) bool {
	credentials := e.told("credentials", configured)
	return credentials == "token" || credentials == nil && e.told("credentials_file", configured) == nil
}

// told returns what one of the chosen entry's settings is, by the variables or as it is
// configured; nil where nobody sets it.
func (e *istio) told(name string, configured *Config) any {
	for _, a := range e.found {
		var value any
		if a.Path == "providers."+e.choice.Entry+".settings."+name && json.Unmarshal([]byte(a.Value), &value) == nil {
			return value
		}
	}
	for _, entry := range configured.Providers {
		if entry.Name == e.choice.Entry {
			return entry.Settings[name]
		}
	}
	return nil
}
