package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
)

// ruleNotes returns what rules that are valid may not be meant to do.
func (c *Config) ruleNotes() (all []string) {
	for _, r := range c.Rules {
		for _, note := range []string{providerNote(c, r), certManagerNote(r), nodeNote(c, r)} {
			if note != "" {
				all = append(all, fmt.Sprintf("rules.%s: %s", r.Name, note))
			}
		}
	}
	return all
}

// signsCSR are the providers whose CAs sign the names of a CSR and no others.
var signsCSR = []string{"acme", "est", "kubernetes", "step"}

// providerNote reports names and requests of a rule that its provider cannot serve.
func providerNote(c *Config, r Rule) string {
	p := providerOf(c, r)
	csrOnly := slices.Contains(signsCSR, p.Provider)
	switch {
	case p.Provider == "citadel", p.Provider == "google" && p.Settings["subject_mode"] == "reflected-spiffe":
		return fmt.Sprintf("the provider %s certifies the identity of this program, not the names of a rule, with these settings; use another", p.Provider)
	case p.Provider == "acme" && (r.Names.SPIFFEID != "" || serves(r, IstioRequests)):
		return "ACME has no SPIFFE IDs; use another provider than acme"
	case csrOnly && servesPods(c, r):
		return fmt.Sprintf("the CSRs of pod certificates have no names, and the provider %s signs only what a CSR names; use another", p.Provider)
	case csrOnly && serves(r, IstioRequests) && len(r.Names.DNSNames)+len(r.Names.IPAddresses) > 0:
		return fmt.Sprintf("the provider %s signs only what a CSR names, and proxies of a mesh name a SPIFFE ID alone; remove the other names", p.Provider)
	}
	return ""
}

func providerOf(c *Config, r Rule) agent.Provider {
	for _, p := range c.Hosted().Providers {
		if p.Name == r.Authority {
			if p.Provider == "" {
				p.Provider = p.Name
			}
			return p
		}
	}
	return agent.Provider{}
}

// serves reports whether a rule names a kind of requests.
func serves(r Rule, kind string) bool { return slices.Contains(r.Match.Requests, kind) }

// servesPods reports whether a rule is for a signer's pod certificates.
func servesPods(c *Config, r Rule) bool {
	return (len(r.Match.Requests) == 0 || serves(r, PodCertificateRequests)) && slices.ContainsFunc(c.Signers, func(s Signer) bool {
		return s.PodCertificates.Enabled && (len(r.Match.Signers) == 0 || slices.Contains(r.Match.Signers, s.Name))
	})
}

// certManagerNote is for lifetimes that are less than cert-manager's wait after a failure.
func certManagerNote(r Rule) string {
	if !serves(r, CertManagerRequests) || r.MaxTTL.Duration >= time.Hour {
		return ""
	}
	return fmt.Sprintf("max_ttl is %s: cert-manager asks for 1h at least, and after a failed request it waits for 1h, when the certificate has ended; write 1h or more", r.MaxTTL)
}

// nodeNote is for names of nodes that pods get as well.
func nodeNote(c *Config, r Rule) string {
	names := slices.Concat(r.Names.DNSNames, r.Names.Requested, []string{r.Names.SPIFFEID})
	ofNode := slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "{node}") })
	if !ofNode || len(r.Match.Kinds) > 0 || !servesPods(c, r) && !serves(r, IstioRequests) {
		return ""
	}
	return "match.kinds is not set, so pods get the name of their node ({node}), too; write kinds: [node], or [pod] if that is what you want"
}
