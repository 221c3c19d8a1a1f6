package config

import (
	"fmt"
	"slices"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
)

func (c *Config) checkCluster(p *settings.Problems) {
	if c.Cluster.Disabled {
		c.checkOff(p)
		return
	}
	if !settings.IsClusterID(c.Cluster.ID) {
		p.Say("cluster.id", c.Cluster.ID, "write the CLUSTER_ID of its proxies: 1 to 253 letters, digits, dots, - and _")
	}
	c.Remotes.check(p)
	c.Remotes.Limits.check(p)
	if !settings.IsNamespace(c.Cluster.SystemNamespace) {
		p.Say("cluster.system_namespace", c.Cluster.SystemNamespace, settings.WriteNamespace)
	}
}

func (l RemoteLimits) check(p *settings.Problems) {
	if l.Bytes < 1<<20 {
		p.Say("remotes.limits.bytes", l.Bytes, "write 1Mi or more")
	}
}

// checkOff rejects settings that need Kubernetes.
func (c *Config) checkOff(p *settings.Problems) {
	const without = "it has no effect because cluster.disabled is true; remove one of the two"
	if c.Cluster.Kubeconfig != "" {
		p.Say("cluster.kubeconfig", c.Cluster.Kubeconfig, without)
	}
	if c.Remotes.Folder != "" {
		p.Say("remotes.folder", c.Remotes.Folder, without)
	}
	if len(c.Secrets.Grants)+len(c.Secrets.MayReadConfigCluster) > 0 {
		p.Say("secrets", "set", without)
	}
	if c.Resources.Folder == "" {
		p.Say("resources.folder", "", "cluster.disabled is true, so there would be nothing to serve; set it, or enable the cluster")
	}
}

func (c *Config) checkSecrets(p *settings.Problems) {
	for i, g := range c.Secrets.Grants {
		checkGrant(p, fmt.Sprintf("secrets.grants.%d", i), g)
	}
}

func (c *Config) checkAccess(p *settings.Problems) {
	for setting, value := range map[string]agent.Duration{"allow": c.Access.Allow, "deny": c.Access.Deny} {
		if value.Duration < 10*time.Second || value.Duration > time.Hour {
			p.Say("access."+setting, value, "write 10s to 1h")
		}
	}
	if out := c.Access.Outage; out.Duration < 0 || out.Duration > 24*time.Hour {
		p.Say("access.outage", out, "write 0s to 24h")
	}
}

func checkGrant(p *settings.Problems, path string, g Grant) {
	for setting, value := range map[string]string{
		"trust_domain": g.To.TrustDomain, "cluster": g.To.Cluster, "namespace": g.To.Namespace, "service_account": g.To.ServiceAccount,
	} {
		if value == "" {
			p.Say(path+".to."+setting, "", `write the caller's, or "*" for any`)
		}
	}
	if ns := g.To.Namespace; ns != "" && ns != "*" && !settings.IsNamespace(ns) {
		p.Say(path+".to.namespace", ns, settings.WriteNamespace+`, or "*" for any`)
	}
	if !settings.IsNamespace(g.Namespace) {
		p.Say(path+".namespace", g.Namespace, settings.WriteNamespace+"; write one grant per namespace")
	}
	if len(g.Names) == 0 || slices.Contains(g.Names, "") {
		p.Say(path+".names", g.Names, `write the names of secrets, or "*" for all in that namespace`)
	}
}
