package config

import (
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/settings"
)

// ClusterName is a cluster ID that a setting names.
type ClusterName struct {
	Setting string `json:"setting"`
	ID      string `json:"id"`
}

// ClusterNames returns the cluster IDs that settings name, without the "*" that means all.
// Whether there are such clusters is known only when they are followed.
func (c *Config) ClusterNames() (all []ClusterName) {
	add := func(setting string, ids ...string) {
		for _, id := range ids {
			all = append(all, ClusterName{setting, id})
		}
	}
	for _, d := range c.TrustDomains {
		add("trust_domains."+d.Name+".clusters", d.Clusters...)
	}
	for i, a := range c.Authenticators {
		add(fmt.Sprintf("authenticators.%d.clusters", i), a.Clusters...)
	}
	for _, id := range c.Secrets.MayReadConfigCluster {
		if id != "*" {
			add("secrets.may_read_config_cluster", id)
		}
	}
	for i, g := range c.Secrets.Grants {
		if g.To.Cluster != "" && g.To.Cluster != "*" {
			add(fmt.Sprintf("secrets.grants.%d.to.cluster", i), g.To.Cluster)
		}
	}
	return all
}

// checkClusterNames refuses IDs that no cluster can have.
func (c *Config) checkClusterNames(p *settings.Problems) {
	for _, name := range c.ClusterNames() {
		if !settings.IsClusterID(name.ID) {
			p.Say(name.Setting, name.ID, "write a cluster ID: 1 to 253 letters, digits, dots, - and _")
		}
	}
}
