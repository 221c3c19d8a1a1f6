package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Followed is the SPIFFE bundle endpoint of a foreign trust domain.
type Followed struct {
	// TrustDomain is whose bundle this is. Required.
	TrustDomain string `json:"trust_domain"`
	// URL is where it is, an https URL. Required.
	URL string `json:"url"`
	// ServerID is the SPIFFE ID of the server (the profile https_spiffe), in a trust domain that
	// has an endpoint here. Default: the server has a Web PKI certificate (https_web).
	ServerID string `json:"server_id"`
	// RootFile holds the roots (PEM) that a Web PKI certificate leads to. Default: the system's.
	RootFile string `json:"root_file"`
	// InitialFile holds the trust domain's roots (PEM) until the first answer. A server in this same
	// trust domain cannot be verified without them. Default: none.
	InitialFile string `json:"initial_file"`
}

// BundleEndpoint is a bundle endpoint whose roots are a trust bundle that workload_api.federated has;
// the Workload API has its JWT keys, too.
type BundleEndpoint struct {
	// Name is that of the trust bundle. Default: TrustDomain.
	Name string `json:"name"`
	Followed
}

// Authority is what logs and metrics call the endpoint of a trust domain. No provider has such a
// name.
func (e BundleEndpoint) Authority() string { return "bundle endpoint of " + e.TrustDomain }

func (e BundleEndpoint) source() Source {
	return Source{Name: e.Name, Kind: TrustBundle, Providers: []string{e.URL}, Rule: "bundle_endpoints names it"}
}

// completeEndpoints runs after the secrets, which have their names, and before what refers to
// trust bundles.
func (c *Config) completeEndpoints(p *problems) {
	seen := map[string]bool{}
	for i := range c.BundleEndpoints {
		e := &c.BundleEndpoints[i]
		if err := pki.CheckTrustDomain(e.TrustDomain); err != nil {
			c.say(p, fmt.Sprintf("bundle_endpoints.%d.trust_domain", i), e.TrustDomain, err.Error())
			continue
		}
		if seen[e.TrustDomain] {
			p.add(fmt.Errorf("bundle_endpoints has the trust domain %.256q twice", e.TrustDomain))
			continue
		}
		seen[e.TrustDomain] = true
		e.Name = cmp.Or(e.Name, e.TrustDomain)
		c.checkEndpoint(p, *e, c.BundleEndpoints[:i])
		c.federate(p, *e)
	}
}

func (c *Config) checkEndpoint(p *problems, e BundleEndpoint, before []BundleEndpoint) {
	path := "bundle_endpoints." + text.Clean(e.Name)
	if err := endpoint.CheckURL(e.URL, false); err != nil {
		p.add(fmt.Errorf("%s.url: %w", path, err))
	}
	switch {
	case len(e.Name) > maxSecretName || strings.HasPrefix(e.Name, "file-"):
		c.say(p, path+".name", e.Name, fmt.Sprintf("write 1 to %d bytes that do not begin with file-", maxSecretName))
	case e.Name == DefaultSecret, e.Name == RootCA, c.configured(e.Name), c.FromFiles(e.Name), c.FromSpire(e.Name):
		c.say(p, path+".name", e.Name, "another secret has that name; give the bundle its own")
	case slices.ContainsFunc(before, func(other BundleEndpoint) bool { return other.Name == e.Name }):
		c.say(p, path+".name", e.Name, "another entry has that name; give each its own")
	}
}

// federate gives the bundle to the Workload API, and to SDS by SPIRE's names.
func (c *Config) federate(p *problems, e BundleEndpoint) {
	w := &c.WorkloadAPI
	if other, taken := w.Federated[e.TrustDomain]; taken && other != e.Name {
		c.say(p, "workload_api.federated."+e.TrustDomain, other, "bundle_endpoints has that trust domain as well; remove one of the two")
		return
	}
	if w.Federated = maps.Clone(w.Federated); w.Federated == nil {
		w.Federated = map[string]string{}
	}
	w.Federated[e.TrustDomain] = e.Name
}

// fromEndpoint reports whether a name is the trust bundle of a bundle endpoint.
func (c *Config) fromEndpoint(name string) bool {
	return slices.ContainsFunc(c.BundleEndpoints, func(e BundleEndpoint) bool { return e.Name == name })
}
