package config

import (
	"github.com/countersign-dev/countersign/ra"
)

// IstioItself is the name of the engine's door through which the certificate of Istio's CA API is
// asked for, and of its rule.
const IstioItself = "istio-certificate"

// itself stands for the API in that rule and in the audit log.
const itself = "countersign-ra"

// asksForItself reports whether an authority signs the certificate of the API.
func (c *Config) asksForItself() bool { return c.Istio.Enabled() && !c.Istio.Certificate.InFiles() }

// Itself is Istio's CA API, which the operator says that it is.
func (c *Config) Itself() ra.Subject {
	return ra.Subject{Kind: ra.ServiceAccount, Cluster: c.Cluster.ID, Namespace: c.Cluster.SystemNamespace, ServiceAccount: itself, Verified: "configuration"}
}

// ownDoors returns the engine's doors for what countersign-ra asks for itself.
func (c *Config) ownDoors() []ra.Door {
	all := c.meshDoors()
	if c.asksForItself() {
		all = append(all, ra.Door{Name: IstioItself, FollowsRoots: true, Own: true})
	}
	return all
}

// ownRules returns the rules for these doors. No other rule is for them, as each rule names its
// doors.
func (c *Config) ownRules() []ra.Rule {
	all, own, s := c.meshRules(), c.Istio.Certificate, c.Itself()
	if !c.asksForItself() {
		return all
	}
	return append(all, ra.Rule{
		Name: IstioItself, Authority: own.Authority, MaxTTL: own.TTL.Duration, Names: ra.Names{DNSNames: own.DNSNames},
		Match: ra.Match{
			Doors: []string{IstioItself}, Clusters: []string{s.Cluster}, Kinds: []ra.Kind{s.Kind}, Namespaces: []string{s.Namespace}, ServiceAccounts: []string{itself},
		},
	})
}
