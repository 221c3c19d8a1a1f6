package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/revocation"
)

// CRL adds certificate revocation lists to one trust bundle.
type CRL struct {
	// Name is that of the trust bundle. Default: ROOTCA.
	Name string `json:"name"`
	// Files hold the lists: PEM blocks "X509 CRL", or one list in DER. Certificates among them
	// are intermediate CAs that signed one.
	Files []string `json:"files"`
	// Providers are asked for the lists of their CAs, if they have the ability
	// revocation-source; "spire" is the Workload API at spire.socket. Default: none.
	Providers []string `json:"providers"`
	// Chains name key pairs whose intermediate CAs need a list, too, as peers have the same.
	// Default: default, for ROOTCA.
	Chains []string `json:"chains"`
	// LeafOnly checks only the peer's own certificate, not the CAs above it. Default: false.
	LeafOnly bool `json:"leaf_only"`
	// Stale is what to do while a CA has no list, or an expired one: keep refuses its peers,
	// drop checks no peer. Default: keep.
	Stale string `json:"stale"`
}

// completeCRLs runs when every secret is known.
func (c *Config) completeCRLs(p *problems) {
	seen := map[string]bool{}
	for i := range c.CRL {
		list := &c.CRL[i]
		list.Name, list.Stale = cmp.Or(list.Name, RootCA), cmp.Or(list.Stale, string(revocation.Keep))
		path := "crl." + text.Clean(list.Name)
		if seen[list.Name] {
			p.add(fmt.Errorf("crl has %.256q twice: name all files and providers of a trust bundle in one entry", list.Name))
		}
		seen[list.Name] = true
		if len(list.Files)+len(list.Providers) == 0 || slices.Contains(list.Files, "") {
			c.say(p, path+".files", fmt.Sprintf("%q", list.Files), "name the files with the revocation lists, or the providers of the CAs that publish them")
		}
		c.checkCRLProviders(p, list, path)
		c.oneOf(p, path+".stale", list.Stale, string(revocation.Keep), string(revocation.Drop))
		c.checkCRLSecrets(p, list, path)
	}
	c.checkCRLOutputs(p)
}

func (c *Config) checkCRLSecrets(p *problems, list *CRL, path string) {
	if kind := c.kindOf(list.Name); kind != TrustBundle {
		c.say(p, path+".name", list.Name, "no trust bundle of that name is configured")
	}
	if list.Name == RootCA && list.Chains == nil && c.kindOf(DefaultSecret) == KeyPair && !c.Workloads.On() {
		list.Chains = []string{DefaultSecret}
	}
	for _, name := range list.Chains {
		if c.kindOf(name) != KeyPair {
			c.say(p, path+".chains", name, "no key pair of that name is configured")
		}
	}
}

func (c *Config) checkCRLProviders(p *problems, list *CRL, path string) {
	for i, name := range list.Providers {
		switch {
		case slices.Contains(list.Providers[:i], name):
			c.say(p, path+".providers", name, "it is there twice")
		case name == SpireProvider && c.Spire.Socket != "", slices.Contains(c.providerNames(), name):
		default:
			c.say(p, path+".providers", name, "no provider of that name is configured")
		}
	}
}

// checkCRLOutputs refuses files that would be empty: no server starts with one.
func (c *Config) checkCRLOutputs(p *problems) {
	for _, o := range c.Outputs {
		if !slices.ContainsFunc(o.Files, func(f OutputFile) bool { return f.Content == string(output.CRL) }) {
			continue
		}
		i := slices.IndexFunc(c.CRL, func(list CRL) bool { return list.Name == o.Bundle })
		switch {
		case i < 0:
			p.add(fmt.Errorf("outputs.%s writes the revocation lists of %.256q, which has none: add an entry of that name to crl", text.Clean(o.Name), o.Bundle))
		case c.CRL[i].Stale == string(revocation.Drop):
			p.add(fmt.Errorf("outputs.%s writes the revocation lists of %.256q, and crl.%s.stale is drop: a server does not start with an empty file; write keep", text.Clean(o.Name), o.Bundle, text.Clean(o.Bundle)))
		}
	}
}

// kindOf returns the kind of a secret that this agent serves by name, or "".
func (c *Config) kindOf(name string) string {
	for _, source := range c.Sources() {
		if source.Name == name && source.Socket != c.Socket.Path {
			return source.Kind
		}
	}
	return ""
}
