package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/certmanager"
	"github.com/countersign-dev/countersign/ra"
)

// CertManagerRequests is the kind of cert-manager's CertificateRequests.
const CertManagerRequests = "cert-manager"

// CertManager serves cert-manager's CertificateRequests in the home cluster.
type CertManager struct {
	// Authorities are those that issuers may name. Default: none, nothing is served.
	Authorities []CertManagerAuthority `json:"authorities"`
}

// CertManagerAuthority says which issuers may name an authority.
type CertManagerAuthority struct {
	// Name is the name of an entry in providers. Required.
	Name string `json:"name"`
	// ClusterIssuers lets each CountersignClusterIssuer name it. Default: false.
	ClusterIssuers bool `json:"cluster_issuers"`
	// Namespaces are those whose CountersignIssuers may name it: names, or patterns with one *.
	// Default: none.
	Namespaces []string `json:"namespaces"`
}

// Enabled reports whether anything is served.
func (c CertManager) Enabled() bool { return len(c.Authorities) > 0 }

// Issuers returns which issuers may name which authority.
func (c CertManager) Issuers() (all []certmanager.Authority) {
	for _, a := range c.Authorities {
		all = append(all, certmanager.Authority(a))
	}
	return all
}

func (c CertManager) doors() (all []ra.Door) {
	for _, a := range c.Authorities {
		all = append(all, certmanager.EngineDoor(a.Name))
	}
	return all
}

// Door returns the name of the engine's door for an authority, or for the only one if that is
// empty; empty if there is none.
func (c CertManager) Door(authority string) string {
	if authority == "" && len(c.Authorities) == 1 {
		authority = c.Authorities[0].Name
	}
	if !c.lists(authority) {
		return ""
	}
	return certmanager.EngineDoor(authority).Name
}

func (c CertManager) lists(authority string) bool {
	return slices.ContainsFunc(c.Authorities, func(a CertManagerAuthority) bool { return a.Name == authority })
}

func (c *Config) checkCertManager(p *settings.Problems) {
	seen := map[string]bool{}
	for i, a := range c.CertManager.Authorities {
		path := "cert_manager.authorities." + a.Name
		switch {
		case a.Name == "":
			p.Say(fmt.Sprintf("cert_manager.authorities.%d.name", i), "", c.configured())
			continue
		case !c.isProvider(a.Name):
			p.Say(path, a.Name, c.configured())
		case seen[a.Name]:
			p.Say(path, a.Name, "duplicate authority; write each once")
		case !a.ClusterIssuers && len(a.Namespaces) == 0:
			p.Say(path, "for nobody", "set cluster_issuers, or namespaces with the namespaces whose issuers may name it")
		}
		seen[a.Name] = true
		for _, pattern := range a.Namespaces {
			if strings.Count(pattern, "*") > 1 || !settings.IsNamespace(strings.Replace(pattern, "*", "x", 1)) {
				p.Say(path+".namespaces", pattern, "write a namespace, or a pattern with one * such as team-*")
			}
		}
	}
}

// certManagerDoor returns the door of a rule that names the kind, which is that of its authority.
// No rule is for cert-manager that does not say so.
func (c *Config) certManagerDoor(p *settings.Problems, path string, r *Rule) (all []ra.Door) {
	if !slices.Contains(r.Match.Requests, CertManagerRequests) {
		return nil
	}
	if !c.CertManager.lists(r.Authority) {
		p.Say(path+".authority", r.Authority, "for the requests of cert-manager, write a name that is in cert_manager.authorities, or add it there")
		return nil
	}
	return []ra.Door{certmanager.EngineDoor(r.Authority)}
}
