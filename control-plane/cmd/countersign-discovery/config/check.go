package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// maxSocketPath is the size of sockaddr_un's path without its final zero byte (unix(7)).
const maxSocketPath = 107

// problems collects all errors, so that one run reports them all.
type problems struct{ errs []error }

// say adds an error: a setting, its value, and what is allowed.
func (p *problems) say(setting string, value any, allowed string) {
	shown := fmt.Sprintf("%q", wire.CleanText(fmt.Sprint(value), ""))
	if fmt.Sprint(value) == "" || fmt.Sprint(value) == "[]" {
		shown = "not set"
	}
	p.errs = append(p.errs, fmt.Errorf("%s is %s: %s", wire.CleanText(setting, ""), shown, allowed))
}

func (p *problems) err() error { return errors.Join(p.errs...) }

func (c *Config) check(p *problems) {
	c.checkListen(p)
	c.checkCertificate(p)
	c.checkTrustDomains(p)
	c.checkAuthenticators(p)
	c.checkCluster(p)
	c.checkSecrets(p)
	c.checkClusterNames(p)
	c.checkAccess(p)
	c.checkRest(p)
}

func (c *Config) checkListen(p *problems) {
	l := c.Listen
	if l.TLS == "" && l.Plaintext == "" {
		p.say("listen.tls", "", "write host:port, such as :15012, here or in listen.plaintext")
	}
	checkHostPort(p, "listen.tls", l.TLS)
	checkHostPort(p, "listen.plaintext", l.Plaintext)
	if l.AllowTokenOverPlaintext && l.Plaintext == "" {
		p.say("listen.allow_token_over_plaintext", true, "it has no effect without listen.plaintext; set that, or remove this")
	}
}

func checkHostPort(p *problems, setting, address string) {
	if address == "" {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if _, wrong := net.LookupPort("tcp", port); err != nil || wrong != nil || port == "" {
		p.say(setting, address, "write host:port, such as :15012 or 127.0.0.1:15012")
	}
}

func (c *Config) checkCertificate(p *problems) {
	own := c.Certificate
	switch {
	case own.inFiles() && (own.ChainFile == "" || own.KeyFile == ""):
		p.say("certificate.chain_file", own.ChainFile, "set both chain_file and key_file, or neither")
	case own.inFiles() && len(own.DNSNames)+len(own.Providers) > 0, own.inFiles() && own.SPIFFEID != "":
		p.say("certificate.chain_file", own.ChainFile, "a certificate from files cannot be combined with dns_names, spiffe_id or providers; remove one or the other")
	case own.inFiles() && len(c.Providers) > 0:
		p.say("providers", len(c.Providers), "they have no effect with a certificate from files; remove one of the two")
	case own.inFiles():
	case len(own.DNSNames) == 0 && own.SPIFFEID == "":
		p.say("certificate.dns_names", "", "set the names that clients dial, or spiffe_id, or chain_file and key_file")
	case len(c.Providers) == 0:
		p.say("providers", "", "name the providers that sign the server's certificate, or set certificate.chain_file and key_file")
	}
	if _, err := pki.NewIdentity(own.SPIFFEID, own.DNSNames, nil); err != nil {
		p.errs = append(p.errs, fmt.Errorf("certificate: %w", err))
	}
	if _, err := pki.ParseKeyType(own.KeyType); err != nil {
		p.say("certificate.key_type", own.KeyType, "ecdsa-p256, ecdsa-p384, rsa-2048, rsa-3072, rsa-4096 or ed25519 is allowed")
	}
	if own.TTL.Duration < time.Second {
		p.say("certificate.ttl", own.TTL, "write 1s or more")
	}
}

func (c *Config) checkTrustDomains(p *problems) {
	seen := map[string]bool{}
	for i, d := range c.TrustDomains {
		if _, err := pki.ParseSPIFFEID("spiffe://" + d.Name + "/x"); d.Name == "" || err != nil {
			p.say(fmt.Sprintf("trust_domains.%d.name", i), d.Name, "write a trust domain, such as cluster.local: lowercase letters, digits, dots, - and _")
			continue
		}
		path := "trust_domains." + d.Name
		if seen[d.Name] {
			p.say(path, d.Name, "duplicate trust domain; list each once, with one source of roots")
		}
		seen[d.Name] = true
		c.checkTrustDomain(p, path, d)
	}
}

func (c *Config) checkTrustDomain(p *problems, path string, d TrustDomain) {
	n := 0
	for _, set := range []bool{d.OwnCA, d.RootsFile != "", d.Bundle != Bundle{}} {
		if set {
			n++
		}
	}
	if n != 1 {
		p.say(path, fmt.Sprintf("%d sources of roots", n), "set one of own_ca, roots_file and bundle")
	}
	if d.OwnCA && c.Certificate.inFiles() {
		p.say(path+".own_ca", true, "the server's certificate comes from files, so it has no CA of its own; set roots_file")
	}
	if d.Bundle != (Bundle{}) {
		d.Bundle.check(p, path+".bundle")
	}
}

func (b Bundle) check(p *problems, path string) {
	if !strings.HasPrefix(b.URL, "https://") {
		p.say(path+".url", b.URL, "write an https URL")
	}
	if b.ServerID != "" {
		if _, err := pki.ParseSPIFFEID(b.ServerID); err != nil {
			p.say(path+".server_id", b.ServerID, "write the SPIFFE ID of the server, or remove it if the server has a Web PKI certificate")
		}
		if b.RootFile != "" {
			p.say(path+".root_file", b.RootFile, "it applies only to Web PKI certificates; remove it, or server_id")
		}
	}
}

func (c *Config) checkAuthenticators(p *problems) {
	if c.Authenticators == nil {
		c.Authenticators = c.usualAuthenticators()
	}
	if len(c.Authenticators) == 0 {
		p.say("authenticators", "", "no caller could be authenticated; write certificate (with trust_domains), jwt or kubernetes")
	}
	seen := map[string]bool{}
	for i, a := range c.Authenticators {
		path := fmt.Sprintf("authenticators.%d", i)
		if key := a.Kind + " " + a.Issuer; seen[key] {
			p.say(path+".kind", a.Kind, "duplicate authenticator; remove one")
		} else {
			seen[key] = true
		}
		c.checkAuthenticator(p, path, a)
	}
	if len(c.Audiences) == 0 || slices.Contains(c.Audiences, "") {
		p.say("audiences", c.Audiences, "write the accepted audiences of Kubernetes tokens, such as istio-ca")
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

func (c *Config) checkAuthenticator(p *problems, path string, a Authenticator) {
	if a.Kind != ByJWT && !a.isZero() {
		p.say(path+".kind", a.Kind, "issuer and the settings that go with it apply only to kind jwt; remove them")
	}
	if a.Kind == ByCertificate && a.ServiceAccounts != "" {
		p.say(path+".service_accounts", a.ServiceAccounts, "it applies only to tokens; remove it")
	}
	if _, err := authn.ParseTemplate(a.ServiceAccounts); err != nil {
		p.say(path+".service_accounts", a.ServiceAccounts, "write it as spiffe://cluster.local/ns/{namespace}/sa/{service_account}")
	}
	switch a.Kind {
	case ByCertificate:
		if len(c.TrustDomains) == 0 {
			p.say(path+".kind", a.Kind, "it needs trust_domains; add them, or remove this")
		}
	case ByKubernetes:
		if c.Cluster.Disabled {
			p.say(path+".kind", a.Kind, "it needs an API server, but cluster.disabled is true; remove one of the two")
		}
	case ByJWT:
		a.check(p, path)
		if a.ServiceAccounts == "" && a.TrustDomain == "" {
			p.say(path+".trust_domain", "", "set the trust domain of its subjects, or service_accounts, or both")
		}
	default:
		p.say(path+".kind", a.Kind, "certificate, jwt or kubernetes is allowed")
	}
}

func (j JWT) isZero() bool {
	return j.Issuer+j.JWKSURL+j.JWKSFile+j.RootFile+j.TrustDomain == "" && len(j.Audiences)+len(j.Clusters) == 0 &&
		!j.AllowLoopbackHTTP && j.Leeway.Duration == 0
}

func (j JWT) check(p *problems, path string) {
	if j.Issuer == "" {
		p.say(path+".issuer", "", "write the iss claim of its tokens")
	}
	if len(j.Audiences) == 0 || slices.Contains(j.Audiences, "") {
		p.say(path+".audiences", j.Audiences, "write the accepted audiences of its tokens")
	}
	if j.JWKSURL != "" && j.JWKSFile != "" {
		p.say(path+".jwks_file", j.JWKSFile, "set jwks_url or jwks_file, not both")
	}
	if j.Leeway.Duration < 0 || j.Leeway.Duration > 5*time.Minute {
		p.say(path+".leeway", j.Leeway, "write 0s to 5m")
	}
}

func (c *Config) checkRest(p *problems) {
	for setting, value := range map[string]uint32{
		"connections": c.Limits.Connections, "connections_of_address": c.Limits.ConnectionsOfAddress,
		"authentications": c.Limits.Authentications, "authentications_of_address": c.Limits.AuthenticationsOfAddress,
		"streams": c.Limits.Streams, "streams_of_identity": c.Limits.StreamsOfIdentity,
		"streams_of_connection": c.Limits.StreamsOfConnection, "message": uint32(min(c.Limits.Message, 1<<30)), "metadata": uint32(min(c.Limits.Metadata, 1<<30)), // #nosec G115 -- bounded
	} {
		if value == 0 {
			p.say("limits."+setting, value, "write 1 or more")
		}
	}
	for setting, value := range map[string]agent.Duration{"stream": c.Times.Stream, "sync": c.Times.Sync} {
		if value.Duration < time.Second {
			p.say("times."+setting, value, "write 1s or more")
		}
	}
	if c.Times.Drain.Duration < 0 {
		p.say("times.drain", c.Times.Drain, "write 0s or more")
	}
	if r := c.Rotation.Ratio; !(r > 0 && r < 1) {
		p.say("rotation.ratio", r, "write more than 0 and less than 1")
	}
	if j := c.Rotation.Jitter; !(j >= 0 && j < 1) {
		p.say("rotation.jitter", j, "write 0 or more and less than 1")
	}
	c.checkStatus(p)
	oneOf(p, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(p, "log.format", c.Log.Format, "text", "json")
}

func oneOf(p *problems, setting, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.say(setting, value, strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1]+" is allowed")
	}
}

func (c *Config) checkStatus(p *problems) {
	checkHostPort(p, "status.probes", c.Status.Probes)
	address := c.Status.Address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" || len(path) > maxSocketPath {
			p.say("status.address", address, fmt.Sprintf("write unix:PATH with a path of 1 to %d bytes", maxSocketPath))
		}
		return
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if address != "" && (err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback())) {
		p.say("status.address", address, "write a loopback address, such as 127.0.0.1:15014, or unix:PATH: the page has no authentication; to serve only probes and metrics elsewhere, set status.probes")
	}
}
