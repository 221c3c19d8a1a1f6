package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// IstioRequests is the kind of requests of a mesh: calls of Istio's CA API.
const IstioRequests = "istio"

// Istio is the door for meshes: Istio's CA API, which each replica serves. Who leads does not
// matter.
type Istio struct {
	// Listen is host:port; the host is optional. Default: none, and the API is not served.
	Listen      string           `json:"listen"`
	Certificate IstioCertificate `json:"certificate"`
	// Audiences are ours: a Kubernetes token must be for one of them. Default: istio-ca.
	Audiences []string `json:"audiences"`
	// Clusters are the IDs of those whose tokens are taken. Default: the home cluster and all
	// of remotes; the rules decide what each may have.
	Clusters []string `json:"clusters"`
	// Issuers are OpenID Connect issuers whose tokens are taken, too. Default: none.
	Issuers []IstioIssuer `json:"issuers"`
	// NodeProxies are service accounts that may ask for those of the pods on their own node,
	// such as istio-system/ztunnel: NAMESPACE/NAME in the home cluster, CLUSTER/NAMESPACE/NAME
	// in another. Default: none.
	NodeProxies []string `json:"node_proxies"`
	// CSRNames is how the names in a CSR are treated: ignored, or held, which refuses a CSR with
	// a name that the rule does not give; it may have fewer. Default: ignored, as with istiod.
	CSRNames string `json:"csr_names"`
	// Renewals are of virtual machines that renew without a token. Default: none.
	Renewals IstioRenewals `json:"renewals"`
	// Limits bound what callers may use on each replica.
	Limits IstioLimits `json:"limits"`
	// Hold is how long a call waits for its certificate before it is told to retry. A ztunnel has
	// eight calls in flight, so each that is held slows down other pods of its node. Default: 10s.
	Hold agent.Duration `json:"hold"`
}

// IstioCertificate is the certificate of the door itself: signed by an authority, or from files.
type IstioCertificate struct {
	// DNSNames are those that a mesh's caAddress has, such as countersign-ra.countersign.svc.
	// Required, unless the certificate is in files.
	DNSNames []string `json:"dns_names"`
	// Authority signs it, by a rule of its own. Default: default_provider, or the only provider.
	Authority string `json:"authority"`
	// KeyType is the kind of key. Default: ecdsa-p256.
	KeyType string `json:"key_type"`
	// TTL is the requested lifetime. Default: 24h.
	TTL agent.Duration `json:"ttl"`
	// ChainFile and KeyFile (PEM) replace all settings above; both files are watched.
	ChainFile string `json:"chain_file"`
	KeyFile   string `json:"key_file"`
}

// IstioIssuer is an OpenID Connect issuer.
type IstioIssuer struct {
	// Issuer is the exact iss claim. Required.
	Issuer string `json:"issuer"`
	// Audiences are ours: a token must be for one of them. Default: those of Kubernetes tokens.
	Audiences []string `json:"audiences"`
	// Cluster is the cluster of its callers in rules. The issuer may speak for any service
	// account there, so write a name of its own unless it is the issuer of that very cluster.
	// Required.
	Cluster string `json:"cluster"`
	// TrustDomain is that of subjects that are SPIFFE IDs. Default: none, subjects are service
	// accounts alone.
	TrustDomain string `json:"trust_domain"`
	// JWKSURL or JWKSFile is the location of its keys. Default: OpenID Connect discovery.
	JWKSURL  string `json:"jwks_url"`
	JWKSFile string `json:"jwks_file"`
	// RootFile contains the roots (PEM) of its servers. Default: the system's.
	RootFile string `json:"root_file"`
}

// The values of csr_names.
const (
	CSRNamesIgnored = "ignored"
	CSRNamesHeld    = "held"
)

// Enabled reports whether the API is served.
func (i Istio) Enabled() bool { return i.Listen != "" }

// InFiles reports whether the certificate is in files.
func (i IstioCertificate) InFiles() bool { return i.ChainFile+i.KeyFile != "" }

// Secret is the certificate as the agent's configuration has it.
func (i IstioCertificate) Secret() agent.Secret {
	return agent.Secret{Name: agent.DefaultSecret, DNSNames: i.DNSNames, KeyType: i.KeyType, TTL: i.TTL, Providers: []string{i.Authority}}
}

// RenewedAuthorities returns those whose certificates machines may renew: those that sign for a mesh.
func (c *Config) RenewedAuthorities() (all []string) {
	for _, r := range c.Rules {
		if slices.Contains(r.Match.Requests, IstioRequests) {
			all = append(all, r.Authority)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Proxies returns the node proxies.
func (c *Config) Proxies() (all []istioca.Account) {
	for _, name := range c.Istio.NodeProxies {
		account, _ := proxyOf(name, c.Cluster.ID) // it was checked
		all = append(all, account)
	}
	return all
}

func proxyOf(name, home string) (istioca.Account, bool) {
	parts := strings.Split(name, "/")
	if len(parts) == 2 {
		parts = append([]string{home}, parts...)
	}
	if len(parts) != 3 || !settings.IsClusterID(parts[0]) || !settings.IsNamespace(parts[1]) || parts[2] == "" {
		return istioca.Account{}, false
	}
	return istioca.Account{Cluster: parts[0], Namespace: parts[1], ServiceAccount: parts[2]}, true
}

// CertSigners returns the values of CertSigner that rules name.
func (c *Config) CertSigners() (all []string) {
	for _, r := range c.Rules {
		all = append(all, r.Match.CertSigners...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// With returns the configuration with what a reload takes over of another: the rules, and who calls
// for a mesh. The rules for what countersign-ra asks for itself stay as that does.
func (c Config) With(next *Config) Config {
	c.Rules, c.given, c.policy = next.Rules, next.given, next.policy
	if policy, err := c.newPolicy(next.given); err == nil { // else the engine says what is wrong
		c.policy = policy
	}
	if i := next.Istio; c.Istio.Enabled() && i.Enabled() { // without it the rules grant nothing to a mesh
		i.Listen, i.Certificate, i.Audiences = c.Istio.Listen, c.Istio.Certificate, c.Istio.Audiences
		i.Limits, i.Hold = c.Istio.Limits, c.Istio.Hold
		c.Istio = i
	}
	if r := next.Mesh.Roots; r.Enabled && r.As == c.Mesh.Roots.As {
		c.Mesh.Roots.Namespaces = r.Namespaces
	}
	return c
}

// RootsWait returns how long a new root of an authority is published before it is used. A mesh learns
// roots with its certificates. With by_reply, the engines wait for those that are out; beside that, the
// longest that the rules allow are waited for, and until each replica has heard of the root.
func (c *Config) RootsWait(a Authority) time.Duration {
	wait := a.Roots.Wait.Duration
	if !c.Istio.Enabled() || !c.ByReply(a) {
		return wait
	}
	for _, r := range c.Rules {
		if r.Authority == a.Name && slices.Contains(r.Match.Requests, IstioRequests) {
			wait = max(wait, r.MaxTTL.Duration+a.Roots.Interval.Duration)
		}
	}
	return wait
}

// ByReply reports whether some learn of an authority's roots only with their own certificates.
func (c *Config) ByReply(a Authority) bool {
	return a.Roots.ByReply || c.Mesh.Publishes(a.Name)
}

func (c *Config) checkIstio(p *settings.Problems) {
	i := &c.Istio
	if !i.Enabled() {
		if !i.isUnset() {
			p.Say("istio.listen", "", "write host:port, such as :15012, or remove istio")
		}
		return
	}
	p.HostPort("istio.listen", i.Listen)
	i.setDefaults()
	c.checkIstioCertificate(p)
	if slices.Contains(i.Audiences, "") {
		p.Say("istio.audiences", i.Audiences, "write the accepted audiences of Kubernetes tokens, such as istio-ca")
	}
	for n, id := range i.Clusters {
		if !settings.IsClusterID(id) {
			p.Say(fmt.Sprintf("istio.clusters.%d", n), id, "write a cluster ID: 1 to 253 letters, digits, dots, - and _")
		}
	}
	for n, name := range i.NodeProxies {
		if _, ok := proxyOf(name, c.Cluster.ID); !ok {
			p.Say(fmt.Sprintf("istio.node_proxies.%d", n), name, "write NAMESPACE/NAME of a service account, or CLUSTER/NAMESPACE/NAME")
		}
	}
	p.OneOf("istio.csr_names", i.CSRNames, CSRNamesIgnored, CSRNamesHeld)
	i.Renewals.check(p)
	i.checkLimits(p)
	seen := map[string]bool{}
	for n := range i.Issuers {
		path := fmt.Sprintf("istio.issuers.%d", n)
		if issuer := i.Issuers[n].Issuer; seen[issuer] {
			p.Say(path+".issuer", issuer, "duplicate issuer; write each once")
		}
		seen[i.Issuers[n].Issuer] = true
		i.Issuers[n].check(p, path)
	}
}

func (i *Istio) setDefaults() {
	if len(i.Audiences) == 0 {
		i.Audiences = []string{"istio-ca"}
	}
	if i.CSRNames == "" {
		i.CSRNames = CSRNamesIgnored
	}
	for n := range i.Issuers {
		if len(i.Issuers[n].Audiences) == 0 {
			i.Issuers[n].Audiences = i.Audiences
		}
	}
	own := &i.Certificate
	if own.InFiles() {
		return
	}
	if own.KeyType == "" {
		own.KeyType = "ecdsa-p256"
	}
	if own.TTL.Duration == 0 {
		own.TTL = duration(24 * time.Hour)
	}
}

func (c *Config) checkIstioCertificate(p *settings.Problems) {
	const path = "istio.certificate"
	own := &c.Istio.Certificate
	if own.InFiles() {
		rest := *own
		rest.ChainFile, rest.KeyFile = "", ""
		switch {
		case own.ChainFile == "" || own.KeyFile == "":
			p.Say(path+".chain_file", own.ChainFile, "set both chain_file and key_file, or neither")
		case !reflect.ValueOf(rest).IsZero():
			p.Say(path+".chain_file", own.ChainFile, "a certificate from files cannot be combined with dns_names, authority, key_type or ttl; remove one or the other")
		}
		return
	}
	if len(own.DNSNames) == 0 {
		p.Say(path+".dns_names", "", "write the host of the mesh's caAddress, such as countersign-ra.countersign.svc, or set chain_file and key_file")
	}
	if _, err := pki.NewIdentity("", own.DNSNames, nil); err != nil && len(own.DNSNames) > 0 {
		p.Add(fmt.Errorf("%s.dns_names: %w", path, err))
	}
	p.KeyType(path+".key_type", own.KeyType)
	if own.TTL.Duration < time.Second {
		p.Say(path+".ttl", own.TTL, "write 1s or more")
	}
	c.settle(p, path+".authority", &own.Authority)
}

func (i IstioIssuer) check(p *settings.Problems, path string) {
	if i.Issuer == "" {
		p.Say(path+".issuer", "", "write the iss claim of its tokens")
	}
	if slices.Contains(i.Audiences, "") {
		p.Say(path+".audiences", i.Audiences, "write the accepted audiences of its tokens")
	}
	if !settings.IsClusterID(i.Cluster) {
		p.Say(path+".cluster", i.Cluster, "write the cluster of its callers, as rules have it: a name of its own, of letters, digits, dots, - and _")
	}
	if i.JWKSURL != "" && i.JWKSFile != "" {
		p.Say(path+".jwks_file", i.JWKSFile, "set jwks_url or jwks_file, not both")
	}
	if _, err := authn.OfSPIFFEID("spiffe://" + i.TrustDomain + "/x"); i.TrustDomain != "" && err != nil {
		p.Say(path+".trust_domain", i.TrustDomain, "write a trust domain, such as vm.example.org: lowercase letters, digits, dots, - and _")
	}
}
