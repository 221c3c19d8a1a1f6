package main

import (
	"path/filepath"
	"slices"
	"strings"
)

const (
	agentPart      = "countersign" // its package has all that the others do not have
	providerPrefix = "countersign-provider-"
	providerFolder = "lib/countersign/providers/"
	licences       = "share/licenses/countersign/" // of modules
	ownLicence     = "share/doc/countersign/LICENSE"
)

// part is a package: the agent's, a server's or one of providers.
type part struct {
	name, summary, about string
	providers            []string // none: the part is a program
	suggests, recommends []string
	setUp                []string // scripts that run after it is installed, after one another
}

// parts are the packages of a release. Servers need a provider; most are in the agent's package.
var parts = []part{{
	name:     agentPart,
	summary:  "Certificates from any CA, kept fresh in any proxy or program",
	about:    "An agent that gets certificates from any certificate authority, through\nproviders that are plugins, and serves them to Envoy over SDS, to SPIFFE's\nlibraries, and in files. With the providers of ACME, EST, step-ca and Vault,\nand one for a key in a folder.",
	suggests: []string{cloud.name},
	setUp:    []string{"account.sh", "statekey.sh", "restart.sh"},
}, cloud, {
	name:       "countersign-discovery",
	summary:    "Countersign's discovery service for many clusters",
	about:      "An xDS server for gateways: a caller's verified identity decides which\nresources it may watch.",
	recommends: []string{agentPart},
	setUp:      []string{"account.sh", "restart.sh"},
}, {
	name:       "countersign-ra",
	summary:    "Countersign's registration authority for Kubernetes",
	about:      "Rules over verified attributes decide which certificates pods, certificate\nsigning requests, Istio's proxies and cert-manager get from a CA.",
	recommends: []string{agentPart},
	setUp:      []string{"account.sh", "restart.sh"},
}}

var cloud = part{
	name:      "countersign-providers-cloud",
	summary:   "Countersign's providers for the CAs of clouds and clusters",
	about:     "The providers of AWS Private CA, Google's Certificate Authority Service,\nKubernetes' signers, and Istio's CA.",
	providers: []string{"aws", "citadel", "google", "kubernetes"},
}

// holds reports whether a file of that name is the part's: a program, its signature, a manual page
// or the completion of a shell.
func (p part) holds(name string) bool {
	if provider, ok := strings.CutPrefix(strings.TrimSuffix(name, ".minisig"), providerPrefix); ok {
		return slices.Contains(p.providers, provider)
	}
	name = strings.TrimPrefix(name, "_")
	return name == p.name || strings.HasPrefix(name, p.name+".") || strings.HasPrefix(name, p.name+"-")
}

// owner returns the part that a file of the stage is for.
func owner(below string) string {
	if !strings.HasPrefix(below, "share/doc/") && !strings.HasPrefix(below, "share/countersign/") {
		for _, p := range parts {
			if p.name != agentPart && p.holds(filepath.Base(below)) {
				return p.name
			}
		}
	}
	return agentPart
}

// lockName is the name of the part's lock file, which sorts behind the providers: dpkg renames files
// into place in that order.
func (p part) lockName() string {
	if p.name == agentPart {
		return "countersign.lock"
	}
	return p.name + ".lock"
}
