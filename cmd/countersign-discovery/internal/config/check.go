package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func (c *Config) check(p *settings.Problems) {
	c.checkListen(p)
	c.checkCertificate(p)
	c.checkTrustDomains(p)
	c.checkPublishBundle(p)
	c.checkAuthenticators(p)
	c.checkCluster(p)
	c.checkSecrets(p)
	c.checkClusterNames(p)
	c.checkAccess(p)
	c.checkRest(p)
}

func (c *Config) checkListen(p *settings.Problems) {
	l := c.Listen
	if l.TLS == "" && l.Plaintext == "" {
		p.Say("listen.tls", "", "write host:port, such as :15012, here or in listen.plaintext")
	}
	p.HostPort("listen.tls", l.TLS)
	p.HostPort("listen.plaintext", l.Plaintext)
	if l.AllowTokenOverPlaintext && l.Plaintext == "" {
		p.Say("listen.allow_token_over_plaintext", true, "it has no effect without listen.plaintext; set that, or remove this")
	}
}

func (c *Config) checkCertificate(p *settings.Problems) {
	own := c.Certificate
	switch {
	case own.inFiles() && (own.ChainFile == "" || own.KeyFile == ""):
		p.Say("certificate.chain_file", own.ChainFile, "set both chain_file and key_file, or neither")
	case own.inFiles() && len(own.DNSNames)+len(own.Providers) > 0, own.inFiles() && own.SPIFFEID != "":
		p.Say("certificate.chain_file", own.ChainFile, "a certificate from files cannot be combined with dns_names, spiffe_id or providers; remove one or the other")
	case own.inFiles() && len(c.Providers) > 0:
		p.Say("providers", len(c.Providers), "they have no effect with a certificate from files; remove one of the two")
	case own.inFiles():
	case len(own.DNSNames) == 0 && own.SPIFFEID == "":
		p.Say("certificate.dns_names", "", "set the names that clients dial, or spiffe_id, or chain_file and key_file")
	case len(c.Providers) == 0:
		p.Say("providers", "", "name the providers that sign the server's certificate, or set certificate.chain_file and key_file")
	}
	if _, err := pki.NewIdentity(own.SPIFFEID, own.DNSNames, nil); err != nil {
		p.Add(fmt.Errorf("certificate: %w", err))
	}
	p.KeyType("certificate.key_type", own.KeyType)
	if own.TTL.Duration < time.Second {
		p.Say("certificate.ttl", own.TTL, "write 1s or more")
	}
}

func (c *Config) checkTrustDomains(p *settings.Problems) {
	seen := map[string]bool{}
	for i, d := range c.TrustDomains {
		if _, err := pki.ParseSPIFFEID("spiffe://" + d.Name + "/x"); d.Name == "" || err != nil {
			p.Say(fmt.Sprintf("trust_domains.%d.name", i), d.Name, "write a trust domain, such as cluster.local: lowercase letters, digits, dots, - and _")
			continue
		}
		path := "trust_domains." + d.Name
		if seen[d.Name] {
			p.Say(path, d.Name, "duplicate trust domain; list each once, with one source of roots")
		}
		seen[d.Name] = true
		c.checkTrustDomain(p, path, d)
	}
}

func (c *Config) checkTrustDomain(p *settings.Problems, path string, d TrustDomain) {
	n := 0
	for _, set := range []bool{d.OwnCA, d.RootsFile != "", d.Bundle != Bundle{}} {
		if set {
			n++
		}
	}
	if n != 1 {
		p.Say(path, fmt.Sprintf("%d sources of roots", n), "set one of own_ca, roots_file and bundle")
	}
	if d.OwnCA && c.Certificate.inFiles() {
		p.Say(path+".own_ca", true, "the server's certificate comes from files, so it has no CA of its own; set roots_file")
	}
	if d.Bundle != (Bundle{}) {
		d.Bundle.check(p, path+".bundle")
	}
}

func (b Bundle) check(p *settings.Problems, path string) {
	if !strings.HasPrefix(b.URL, "https://") {
		p.Say(path+".url", b.URL, "write an https URL")
	}
	if b.ServerID != "" {
		if _, err := pki.ParseSPIFFEID(b.ServerID); err != nil {
			p.Say(path+".server_id", b.ServerID, "write the SPIFFE ID of the server, or remove it if the server has a Web PKI certificate")
		}
		if b.RootFile != "" {
			p.Say(path+".root_file", b.RootFile, "it applies only to Web PKI certificates; remove it, or server_id")
		}
	}
}

func (c *Config) checkAuthenticators(p *settings.Problems) {
	if c.Authenticators == nil {
		c.Authenticators = c.usualAuthenticators()
	}
	if len(c.Authenticators) == 0 {
		p.Say("authenticators", "", "no caller could be authenticated; write certificate (with trust_domains), jwt or kubernetes")
	}
	seen := map[string]bool{}
	for i, a := range c.Authenticators {
		path := fmt.Sprintf("authenticators.%d", i)
		if key := a.Kind + " " + a.Issuer; seen[key] {
			p.Say(path+".kind", a.Kind, "duplicate authenticator; remove one")
		} else {
			seen[key] = true
		}
		c.checkAuthenticator(p, path, a)
	}
	if len(c.Audiences) == 0 || slices.Contains(c.Audiences, "") {
		p.Say("audiences", c.Audiences, "write the accepted audiences of Kubernetes tokens, such as istio-ca")
	}
}

func (c *Config) usualAuthenticators() (all []Authenticator) {
	if len(c.TrustDomains) > 0 {
		all = append(all, Authenticator{Kind: ByCertificate})
	}
	if !c.Cluster.Disabled {
		all = append(all, Authenticator{Kind: ByKubernetes})
	}
	return all
}

func (c *Config) checkAuthenticator(p *settings.Problems, path string, a Authenticator) {
	if a.Kind != ByJWT && !a.isZero() {
		p.Say(path+".kind", a.Kind, "issuer and the settings that go with it apply only to kind jwt; remove them")
	}
	if a.Kind == ByCertificate && a.ServiceAccounts != "" {
		p.Say(path+".service_accounts", a.ServiceAccounts, "it applies only to tokens; remove it")
	}
	if _, err := authn.ParseTemplate(a.ServiceAccounts); err != nil {
		p.Say(path+".service_accounts", a.ServiceAccounts, "write it as spiffe://cluster.local/ns/{namespace}/sa/{service_account}")
	}
	switch a.Kind {
	case ByCertificate:
		if len(c.TrustDomains) == 0 {
			p.Say(path+".kind", a.Kind, "it needs trust_domains; add them, or remove this")
		}
	case ByKubernetes:
		if c.Cluster.Disabled {
			p.Say(path+".kind", a.Kind, "it needs an API server, but cluster.disabled is true; remove one of the two")
		}
	case ByJWT:
		a.check(p, path)
		if a.ServiceAccounts == "" && a.TrustDomain == "" {
			p.Say(path+".trust_domain", "", "set the trust domain of its subjects, or service_accounts, or both")
		}
	default:
		p.Say(path+".kind", a.Kind, "certificate, jwt or kubernetes is allowed")
	}
}

func (j JWT) isZero() bool {
	return j.Issuer+j.JWKSURL+j.JWKSFile+j.RootFile+j.TrustDomain == "" && len(j.Audiences)+len(j.Clusters) == 0
}

func (j JWT) check(p *settings.Problems, path string) {
	if j.Issuer == "" {
		p.Say(path+".issuer", "", "write the iss claim of its tokens")
	}
	if len(j.Audiences) == 0 || slices.Contains(j.Audiences, "") {
		p.Say(path+".audiences", j.Audiences, "write the accepted audiences of its tokens")
	}
	if j.JWKSURL != "" && j.JWKSFile != "" {
		p.Say(path+".jwks_file", j.JWKSFile, "set jwks_url or jwks_file, not both")
	}
}

func (c *Config) checkRest(p *settings.Problems) {
	for setting, value := range map[string]uint32{
		"connections": c.Limits.Connections, "connections_of_address": c.Limits.ConnectionsOfAddress,
		"authentications": c.Limits.Authentications, "authentications_of_address": c.Limits.AuthenticationsOfAddress,
		"streams": c.Limits.Streams, "streams_of_identity": c.Limits.StreamsOfIdentity,
	} {
		if value == 0 {
			p.Say("limits."+setting, value, "write 1 or more")
		}
	}
	for setting, value := range map[string]agent.Duration{"stream": c.Times.Stream, "sync": c.Times.Sync} {
		if value.Duration < time.Second {
			p.Say("times."+setting, value, "write 1s or more")
		}
	}
	if c.Times.Drain.Duration < 0 {
		p.Say("times.drain", c.Times.Drain, "write 0s or more")
	}
	c.Status.Check(p)
	settings.CheckLog(p, c.Log)
}
