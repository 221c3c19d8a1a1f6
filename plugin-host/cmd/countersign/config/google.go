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

// cluster says where Mesh CA is asked, and by which name Google knows the issuer of the
// workload's token.
func (e *istio) cluster(configured *Config) {
	value := e.set[clusterVariable]
	if value == "" {
		return
	}
	if e.choice.Provider != googleProvider {
		e.warn("%s has no effect: it is about Google's authorities, and another was chosen", clusterVariable)
		return
	}
	setting := func(name string) any { return e.choice.told(name, e.found, configured) }
	before := len(e.found)
	if setting("protocol") == meshCA {
		e.found = append(e.found, e.choice.setting("location", value, clusterVariable))
	}
	isURL, byToken := strings.HasPrefix(value, "https://"), setting("credentials") == nil && setting("credentials_file") == nil || setting("credentials") == "token"
	if isURL && byToken && setting("exchange") == nil {
		// As Istio's agent has it, for a cluster with workload identity.
		audience := "identitynamespace:" + e.domain + ":" + value
		e.found = append(e.found, e.choice.setting("exchange", map[string]string{"audience": audience}, clusterVariable))
	}
	if len(e.found) == before {
		e.warn("%s has no effect: it is about Mesh CA, and about tokens that are exchanged", clusterVariable)
	}
}

// told returns what one of the chosen entry's settings is, by the variables or as it is
// configured; nil where nobody sets it.
func (c Choice) told(name string, found []Assignment, configured *Config) any {
	for _, a := range found {
		var value any
		if a.Path == "providers."+c.Entry+".settings."+name && json.Unmarshal([]byte(a.Value), &value) == nil {
			return value
		}
	}
	for _, entry := range configured.Providers {
		if entry.Name == c.Entry {
			return entry.Settings[name]
		}
	}
	return nil
}
