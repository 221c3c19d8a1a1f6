package config

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/control-plane/kubernetes/kubeconfig"
	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
)

const namespaces = "write a namespace: 1 to 63 of a-z, 0-9 and -"

// clusterID matches the keys of a Secret's data.
var clusterID = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,253}$`)

// label matches a Kubernetes namespace: a DNS label (RFC 1123).
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func isNamespace(text string) bool { return label.MatchString(text) }

func (c *Config) checkCluster(p *problems) {
	if c.Cluster.Disabled {
		c.checkOff(p)
		return
	}
	if !clusterID.MatchString(c.Cluster.ID) {
		p.say("cluster.id", c.Cluster.ID, "write the CLUSTER_ID of its proxies: 1 to 253 letters, digits, dots, - and _")
	}
	rules := kubeconfig.Rules{Allow: c.Remotes.Allow, Servers: c.Remotes.Servers}
	if err := rules.Check(); err != nil {
		p.errs = append(p.errs, fmt.Errorf("remotes: %w", err))
	}
	c.Remotes.Limits.check(p)
	if !isNamespace(c.Cluster.SystemNamespace) {
		p.say("cluster.system_namespace", c.Cluster.SystemNamespace, namespaces)
	}
}

func (l RemoteLimits) check(p *problems) {
	if l.Bytes < 1<<20 {
		p.say("remotes.limits.bytes", l.Bytes, "write 1Mi or more")
	}
	if l.Objects == 0 {
		p.say("remotes.limits.objects", l.Objects, "write 1 or more")
	}
	if l.Response < 64<<10 {
		p.say("remotes.limits.response", l.Response, "write 64Ki or more")
	}
}

// checkOff rejects settings that need Kubernetes.
func (c *Config) checkOff(p *problems) {
	const without = "it has no effect because cluster.disabled is true; remove one of the two"
	if c.Cluster.Kubeconfig != "" {
		p.say("cluster.kubeconfig", c.Cluster.Kubeconfig, without)
	}
	if c.Remotes.Folder != "" {
		p.say("remotes.folder", c.Remotes.Folder, without)
	}
	if len(c.Secrets.Grants)+len(c.Secrets.MayReadConfigCluster) > 0 {
		p.say("secrets", "set", without)
	}
	if c.Resources.Folder == "" {
		p.say("resources.folder", "", "cluster.disabled is true, so there would be nothing to serve; set it, or enable the cluster")
	}
}

func (c *Config) checkSecrets(p *problems) {
	for i, g := range c.Secrets.Grants {
		checkGrant(p, fmt.Sprintf("secrets.grants.%d", i), g)
	}
}

func (c *Config) checkAccess(p *problems) {
	for setting, value := range map[string]agent.Duration{"allow": c.Access.Allow, "deny": c.Access.Deny} {
		if value.Duration < 10*time.Second || value.Duration > time.Hour {
			p.say("access."+setting, value, "write 10s to 1h")
		}
	}
	if out := c.Access.Outage; out.Duration < 0 || out.Duration > 24*time.Hour {
		p.say("access.outage", out, "write 0s to 24h")
	}
}

func checkGrant(p *problems, path string, g Grant) {
	for setting, value := range map[string]string{
		"trust_domain": g.To.TrustDomain, "cluster": g.To.Cluster, "namespace": g.To.Namespace, "service_account": g.To.ServiceAccount,
	} {
		if value == "" {
			p.say(path+".to."+setting, "", `write the caller's, or "*" for any`)
		}
	}
	if ns := g.To.Namespace; ns != "" && ns != "*" && !isNamespace(ns) {
		p.say(path+".to.namespace", ns, namespaces+`, or "*" for any`)
	}
	if !isNamespace(g.Namespace) {
		p.say(path+".namespace", g.Namespace, namespaces+"; write one grant per namespace")
	}
	if len(g.Names) == 0 || slices.Contains(g.Names, "") {
		p.say(path+".names", g.Names, `write the names of secrets, or "*" for all in that namespace`)
	}
}
