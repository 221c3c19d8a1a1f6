package config

import (
	"slices"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
)

// PublishBundle serves the roots of a trust domain as a SPIFFE bundle endpoint, on each replica, with
// the certificate of the service.
type PublishBundle struct {
	agent.Published
	// TrustDomain is one of trust_domains with own_ca or roots_file. Default: the only one.
	TrustDomain string `json:"trust_domain"`
}

func (c *Config) checkPublishBundle(p *settings.Problems) {
	const path = "publish_bundle."
	b := &c.PublishBundle
	if b.Address == "" {
		if *b != (PublishBundle{}) {
			p.Say(path+"address", "", agent.WriteAddress)
		}
		return
	}
	b.Complete(func(setting, value, allowed string) { p.Say(setting, value, allowed) }, p.Add)
	c.checkPublished(p)
	own := c.Certificate
	switch {
	case own.inFiles():
	case b.Profile == agent.ProfileSPIFFE && own.SPIFFEID == "":
		p.Say(path+"profile", b.Profile, "the service has no X.509-SVID: set certificate.spiffe_id, or write https_web")
	case b.Profile == agent.ProfileWeb && len(own.DNSNames) == 0:
		p.Say(path+"profile", b.Profile, "the service's certificate has no DNS name: set certificate.dns_names, or write https_spiffe")
	}
	if c.Cluster.Disabled {
		p.Say(path+"address", b.Address, "cluster.disabled is true, and the number of the bundle is kept in a ConfigMap: publish from an agent with state, or enable the cluster")
	}
}

// checkPublished sets the trust domain, and refuses one that another endpoint publishes.
func (c *Config) checkPublished(p *settings.Problems) {
	const path, allowed = "publish_bundle.trust_domain", "write one of trust_domains with own_ca or roots_file; a bundle that comes from an endpoint is published there"
	var own []string
	for _, d := range c.TrustDomains {
		if d.OwnCA || d.RootsFile != "" {
			own = append(own, d.Name)
		}
	}
	name := &c.PublishBundle.TrustDomain
	if *name == "" && len(own) == 1 {
		*name = own[0]
	}
	if !slices.Contains(own, *name) {
		p.Say(path, *name, allowed)
	}
}
