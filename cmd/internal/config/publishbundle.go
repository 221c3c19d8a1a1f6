package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/internal/endpoint"
)

// The profiles of a bundle endpoint (SPIFFE Federation, section 5.2).
const (
	ProfileSPIFFE = "https_spiffe"
	ProfileWeb    = "https_web"
)

// Published is what the bundle endpoints of all programs have.
type Published struct {
	// Address is host:port or :port. Default: off.
	Address string `json:"address"`
	// Profile is https_spiffe for a certificate with a SPIFFE ID, or https_web for one that clients
	// verify as that of any web server. Default: https_spiffe.
	Profile string `json:"profile"`
	// URL is the https URL that clients use; its path is where the bundle is. With it there is a
	// discovery document at /.well-known/wimse-trust-domain. Default: none, and the path is /.
	URL string `json:"url"`
}

// WriteAddress says what an address of a bundle endpoint is.
const WriteAddress = "write host:port, or :port for all addresses of this machine"

// Complete sets the default profile of an endpoint that has an address, and calls say for each wrong
// setting.
func (b *Published) Complete(say func(setting, value, allowed string), add func(error)) {
	if !isHostPort(b.Address) {
		say("publish_bundle.address", b.Address, WriteAddress)
	}
	if b.Profile = cmp.Or(b.Profile, ProfileSPIFFE); b.Profile != ProfileSPIFFE && b.Profile != ProfileWeb {
		say("publish_bundle.profile", b.Profile, "write https_spiffe or https_web")
	}
	if err := endpoint.CheckBundleURL(b.URL); b.URL != "" && err != nil {
		add(fmt.Errorf("publish_bundle.url: %w", err)) // without the text, which may hold a password
	}
}

// PublishBundle serves the roots of trust_domain, and the keys of its JWT-SVIDs, as a SPIFFE bundle
// endpoint: ROOTCA, and the keys of workload_api.jwt_svid.
type PublishBundle struct {
	Published
	// Secret is the key pair of the server. Default: default; required with https_web.
	Secret string `json:"secret"`
}

func (c *Config) completePublishBundle(p *problems) {
	b, path := &c.PublishBundle, "publish_bundle."
	if b.Address == "" {
		if *b != (PublishBundle{}) {
			c.say(p, path+"address", "", WriteAddress)
		}
		return
	}
	b.Complete(func(setting, value, allowed string) { c.say(p, setting, value, allowed) }, p.add)
	switch b.Profile {
	case ProfileSPIFFE:
		b.Secret = cmp.Or(b.Secret, DefaultSecret)
		c.refer(p, path+"secret", b.Secret, KeyPair)
		c.needOwn(p, path+"secret", b.Secret, KeyPair, "a key pair of this agent with a SPIFFE ID")
	case ProfileWeb:
		if b.Secret == "" {
			c.say(p, path+"secret", "", "write the name of a key pair with the DNS name that clients use")
		}
		c.needOwn(p, path+"secret", b.Secret, KeyPair, "a key pair of this agent")
	}
	if slices.Contains(c.absent, RootCA) && !c.FromOthers(RootCA) {
		c.say(p, path+"address", b.Address, "the agent has no ROOTCA to publish; add {name: ROOTCA} to secrets")
	}
	if c.Workloads.On() {
		c.say(p, path+"address", b.Address, "an agent with workloads has no roots of its own; publish from another agent")
	}
}
