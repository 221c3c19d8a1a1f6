package config

// meshCA is what the google provider's setting "protocol" says of a server that speaks
// Mesh CA's protocol.
const meshCA = "meshca"

// clusterVariable names the cluster, and so the zone that Mesh CA is asked in.
const clusterVariable = "GKE_CLUSTER_URL"

// isMeshCA tells whether an entry is of a server that takes the workload's token.
func isMeshCA(entry *Provider) bool {
	return entry.binary() == googleProvider && entry.Settings["protocol"] == meshCA
}

// cluster says where Mesh CA is asked.
func (e *istio) cluster() {
	value := e.set[clusterVariable]
	switch {
	case value == "":
	case e.choice.Provider == googleProvider:
		e.found = append(e.found, e.choice.setting("location", value, clusterVariable))
	default:
		e.warn("%s has no effect: it is about Mesh CA, and another authority was chosen", clusterVariable)
	}
}
