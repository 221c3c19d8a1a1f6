package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/internal/endpoint"
)

// The profiles of a bundle endpoint (SPIFFE Federation, section 5.2).
const (
	profileSPIFFE = "https_spiffe"
	profileWeb    = "https_web"
)

// PublishBundle serves the roots of trust_domain, and the keys of its JWT-SVIDs, as a SPIFFE bundle
// endpoint: ROOTCA, and the keys of workload_api.jwt_svid.
type PublishBundle struct {
	// Address is host:port or :port. Default: off.
	Address string `json:"address"`
	// Profile is https_spiffe for a certificate with a SPIFFE ID, or https_web for one that clients
	// verify as that of any web server. Default: https_spiffe.
	Profile string `json:"profile"`
	// Secret is the key pair of the server. Default: default; required with https_web.
	Secret string `json:"secret"`
	// URL is the https URL that clients use; its path is where the bundle is. With it there is a
	// discovery document at /.well-known/wimse-trust-domain. Default: none, and the path is /.
	URL string `json:"url"`
}

func (c *Config) completePublishBundle(p *problems) {
	b, path := &c.PublishBundle, "publish_bundle."
	if b.Address == "" {
		if *b != (PublishBundle{}) {
			c.say(p, path+"address", "", "write host:port, or :port for all addresses of this machine")
		}
		return
	}
	if !isHostPort(b.Address) {
		c.say(p, path+"address", b.Address, "write host:port, or :port for all addresses of this machine")
	}
	switch b.Profile = cmp.Or(b.Profile, profileSPIFFE); b.Profile {
	case profileSPIFFE:
		b.Secret = cmp.Or(b.Secret, DefaultSecret)
		c.refer(p, path+"secret", b.Secret, KeyPair)
		c.needOwn(p, path+"secret", b.Secret, KeyPair, "a key pair of this agent with a SPIFFE ID")
	case profileWeb:
		if b.Secret == "" {
			c.say(p, path+"secret", "", "write the name of a key pair with the DNS name that clients use")
		}
		c.needOwn(p, path+"secret", b.Secret, KeyPair, "a key pair of this agent")
	default:
		c.say(p, path+"profile", b.Profile, "write https_spiffe or https_web")
	}
	if err := endpoint.CheckBundleURL(b.URL); b.URL != "" && err != nil {
		p.add(fmt.Errorf("%surl: %w", path, err)) // without the text, which may hold a password
	}
	if slices.Contains(c.absent, RootCA) && !c.FromOthers(RootCA) {
		c.say(p, path+"address", b.Address, "the agent has no ROOTCA to publish; add {name: ROOTCA} to secrets")
	}
	if c.Workloads.On() {
		c.say(p, path+"address", b.Address, "an agent with workloads has no roots of its own; publish from another agent")
	}
}
