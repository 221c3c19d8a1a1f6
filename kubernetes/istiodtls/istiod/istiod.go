// Package istiod has the names under which istiod serves ([Names]), and the rule by which the
// registration authority certifies them ([Rule]). It reaches no cluster, so that a configuration
// can be checked without one.
package istiod

import (
	"time"

	"github.com/countersign-dev/countersign/ra"
)

const (
	// Secret is the name of the Secret with its certificate.
	Secret = "istiod-tls"
	// Door is the name of the engine's door, and of its rule.
	Door = "istiod-tls"
	// account stands for istiod in rules and in the audit log.
	account = "istiod"
)

// Names returns the DNS names of istiod's services in a namespace, as proxies, webhooks and
// remote clusters use them.
func Names(namespace string, revisions ...string) (all []string) {
	services := []string{"istiod", "istiod-remote", "istio-pilot"}
	for _, revision := range revisions {
		if revision != "" && revision != "default" {
			services = append(services, "istiod-"+revision)
		}
	}
	for _, service := range services {
		all = append(all, service+"."+namespace+".svc")
	}
	return all
}

// Rule lets an authority sign these names for istiod in a namespace of some clusters, and nothing
// else: no other door leads to it.
func Rule(authority, namespace string, clusters, names []string, ttl time.Duration) ra.Rule {
	return ra.Rule{
		Name: Door, Authority: authority, MaxTTL: ttl, Names: ra.Names{DNSNames: names},
		Match: ra.Match{Doors: []string{Door}, Clusters: clusters, Kinds: []ra.Kind{ra.ServiceAccount}, Namespaces: []string{namespace}, ServiceAccounts: []string{account}},
	}
}

// Subject is istiod in a namespace of a cluster, as the operator configures it.
func Subject(cluster, namespace string) ra.Subject {
	return ra.Subject{Kind: ra.ServiceAccount, Cluster: cluster, Namespace: namespace, ServiceAccount: account, Verified: "configuration"}
}
