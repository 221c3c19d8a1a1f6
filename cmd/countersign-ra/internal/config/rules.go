package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/owned"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/ra"
)

// The kinds of requests.
const (
	PodCertificateRequests     = "pod-certificates"
	CertificateSigningRequests = "certificate-requests"
)

const (
	defaultMaxTTL  = 24 * time.Hour
	defaultHolders = 100
)

// doors returns the engine's doors for a signer, by the kind of request.
func (s Signer) doors() map[string]ra.Door {
	all := map[string]ra.Door{}
	if s.PodCertificates.Enabled {
		all[PodCertificateRequests] = signing.PodDoor(s.Name)
	}
	if s.CertificateRequests.Enabled {
		all[CertificateSigningRequests] = signing.CSRDoor(s.Name)
	}
	return all
}

// Doors returns the engine's doors.
func (c *Config) Doors() []ra.Door { return sorted(append(c.CallersDoors(), c.ownDoors()...)) }

// CallersDoors returns those that callers have: all but the ones for what countersign-ra asks for
// itself.
func (c *Config) CallersDoors() (all []ra.Door) {
	for _, s := range c.Signers {
		for _, door := range s.doors() {
			all = append(all, door)
		}
	}
	all = append(all, c.istioDoors()...)
	return sorted(append(all, c.CertManager.doors()...))
}

func sorted(all []ra.Door) []ra.Door {
	slices.SortFunc(all, func(a, b ra.Door) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Door returns the name of the engine's door for a kind of request; empty if it is not
// enabled.
func (c *Config) Door(signer, requests string) string {
	for _, s := range c.Signers {
		if s.Name == signer {
			return s.doors()[requests].Name
		}
	}
	return ""
}

func (c *Config) checkSigners(p *settings.Problems) {
	if len(c.Signers) == 0 && !c.Istio.Enabled() && !c.CertManager.Enabled() {
		p.Say("signers", "", "write the signer names to serve, such as example.com/workloads, or set istio.listen")
	}
	seen, bundles := map[string]bool{}, map[string]bool{}
	for i := range c.Signers {
		s := &c.Signers[i]
		if s.Name == "" {
			p.Say(fmt.Sprintf("signers.%d.name", i), "", "write a signer name, such as example.com/workloads")
			continue
		}
		path := "signers." + s.Name
		if err := signing.CheckName(s.Name); err != nil {
			p.Add(fmt.Errorf("signers.%d.name: %w", i, err))
		}
		if seen[s.Name] {
			p.Say(path, s.Name, "duplicate signer; write each once")
		}
		if name := s.TrustBundle.Name; name != "" && bundles[name] {
			p.Say(path+".trust_bundle.name", name, "another signer has the same; write another suffix")
		}
		seen[s.Name], bundles[s.TrustBundle.Name] = true, true
		c.checkSigner(p, path, s)
	}
}

func (c *Config) checkSigner(p *settings.Problems, path string, s *Signer) {
	if len(s.doors()) == 0 && s.TrustBundle.Name == "" {
		p.Say(path, "no service", "set pod_certificates.enabled, certificate_requests.enabled or trust_bundle.name, or remove the signer")
	}
	if s.CertificateRequests.Approve && !s.CertificateRequests.Enabled {
		p.Say(path+".certificate_requests.approve", true, "it has no effect without enabled; set that, or remove this")
	}
	bundle := &s.TrustBundle
	if bundle.Name == "" {
		if bundle.Authority != "" {
			p.Say(path+".trust_bundle.authority", bundle.Authority, "it has no effect without name; set that, or remove this")
		}
		if len(bundle.Labels) > 0 {
			p.Say(path+".trust_bundle.labels", len(bundle.Labels), "they have no effect without name; set that, or remove these")
		}
		if len(bundle.BundleEndpoints) > 0 {
			p.Say(path+".trust_bundle.bundle_endpoints", len(bundle.BundleEndpoints), "they have no effect without name; set that, or remove these")
		}
		return
	}
	// The API server's rule (k8s.io/api, ClusterTrustBundle).
	prefix := strings.Replace(s.Name, "/", ":", 1) + ":"
	if suffix, ok := strings.CutPrefix(bundle.Name, prefix); !ok || !settings.IsNamespace(suffix) {
		p.Say(path+".trust_bundle.name", bundle.Name, fmt.Sprintf("write %.256s and a suffix of 1 to 63 of a-z, 0-9 and -", prefix))
	}
	c.settle(p, path+".trust_bundle.authority", &bundle.Authority)
	for _, name := range slices.Sorted(maps.Keys(bundle.Labels)) {
		checkLabel(p, path+".trust_bundle.labels."+name, name, bundle.Labels[name])
	}
	bundle.checkEndpoints(p, path+".trust_bundle.")
}

// checkEndpoints checks the trust domains that a signer is federated with.
func (b *TrustBundle) checkEndpoints(p *settings.Problems, path string) {
	own := b.Labels[trustbundle.WorkloadLabel]
	switch n := len(b.BundleEndpoints); {
	case n == 0:
		return
	case n > trustbundle.MaxFederated:
		p.Say(path+"bundle_endpoints", n, fmt.Sprintf("write %d at most", trustbundle.MaxFederated))
	case own == "" || b.Labels[trustbundle.PeerLabel] != own:
		p.Say(path+"labels", fmt.Sprint(b.Labels), fmt.Sprintf("with bundle_endpoints, write the trust domain of the pods as %s and as %s: by these a volume selects the roots of one trust domain", trustbundle.WorkloadLabel, trustbundle.PeerLabel))
	}
	seen := map[string]bool{own: true}
	for i, e := range b.BundleEndpoints {
		at := fmt.Sprintf("%sbundle_endpoints.%d.", path, i)
		if err := trustbundle.CheckFederated(e.TrustDomain); err != nil {
			p.Say(at+"trust_domain", e.TrustDomain, err.Error())
		}
		if seen[e.TrustDomain] {
			p.Say(at+"trust_domain", e.TrustDomain, "it is there twice, or that of the pods; write each foreign one once")
		}
		seen[e.TrustDomain] = true
		if err := endpoint.CheckURL(e.URL, false); err != nil {
			p.Add(fmt.Errorf("%surl: %w", at, err)) // without the text, which may hold a password
		}
	}
}

// checkLabel checks a label by the API server's rules.
func checkLabel(p *settings.Problems, path, name, value string) {
	switch faults := append(content.IsLabelKey(name), content.IsLabelValue(value)...); {
	case len(faults) > 0:
		p.Say(path, value, faults[0])
	case name == owned.ManagedBy:
		p.Say(path, value, "the object has that label by itself; remove it")
	}
}

// checkRules makes the policy.
func (c *Config) checkRules(p *settings.Problems) {
	if len(c.Rules) == 0 {
		p.Say("rules", "", "write who may have which certificate: without a rule every request is denied")
	}
	used := map[string]bool{}
	for i := range c.Rules {
		rule := &c.Rules[i]
		path := "rules." + rule.Name
		if rule.Name == "" {
			path = fmt.Sprintf("rules.%d", i)
		}
		c.settle(p, path+".authority", &rule.Authority)
		doors := c.doorsOf(p, path, rule)
		if rule.Name == IstioItself {
			p.Say(path, rule.Name, "the rule for the certificate of istio has this name; write another")
		}
		c.given = append(c.given, rule.of(p, path, doors, c.Cluster.ID))
		for _, door := range doors {
			used[door.Name] = true
		}
	}
	for _, door := range c.CallersDoors() {
		if !used[door.Name] && len(c.Rules) > 0 {
			p.Say("rules", "without one for "+door.Name, "add a rule that matches it, by match.signers or match.requests, or disable it: its requests would all be denied")
		}
	}
	if p.Err() == nil {
		var err error
		if c.policy, err = c.newPolicy(c.given); err != nil {
			p.Add(fmt.Errorf("rules: %w", err))
		}
	}
}

// newPolicy returns these rules with those for what countersign-ra asks for itself.
func (c *Config) newPolicy(given []ra.Rule) (*ra.Policy, error) {
	return ra.NewPolicy(c.Cluster.ID, slices.Concat(c.ownRules(), given))
}

// doorsOf returns the doors that a rule is for. They are always named, so that a door which
// is added later has no old rule.
func (c *Config) doorsOf(p *settings.Problems, path string, r *Rule) (all []ra.Door) {
	m := r.Match
	for _, name := range m.Signers {
		if !slices.ContainsFunc(c.Signers, func(s Signer) bool { return s.Name == name }) {
			p.Say(path+".match.signers", name, "write a name that is in signers")
		}
	}
	for _, kind := range m.Requests {
		p.OneOf(path+".match.requests", kind, PodCertificateRequests, CertificateSigningRequests, IstioRequests, CertManagerRequests)
	}
	for _, s := range c.Signers {
		if len(m.Signers) > 0 && !slices.Contains(m.Signers, s.Name) {
			continue
		}
		for kind, door := range s.doors() {
			if len(m.Requests) == 0 || slices.Contains(m.Requests, kind) {
				all = append(all, door)
			}
		}
	}
	all = append(all, c.istioDoorsOf(p, path, m)...)
	all = append(all, c.certManagerDoor(p, path, r)...)
	if len(all) == 0 {
		p.Say(path+".match", "without an effect", "none of its signers has one of its kinds of requests enabled; enable it, or remove the rule")
	}
	return sorted(all)
}

// of returns the engine's rule.
func (r *Rule) of(p *settings.Problems, path string, doors []ra.Door, home string) ra.Rule {
	if r.Usages == "" {
		r.Usages = "any"
	}
	p.OneOf(path+".usages", r.Usages, "any", "server", "client", "both")
	if r.MaxTTL.Duration == 0 {
		r.MaxTTL.Duration = defaultMaxTTL
	}
	if r.Holders == 0 {
		r.Holders = defaultHolders
	}
	m := r.Match
	rule := ra.Rule{
		Holders: int(r.Holders),
		Name:    r.Name, Authority: r.Authority, MaxTTL: r.MaxTTL.Duration, KeyTypes: r.KeyTypes, Usages: usages[r.Usages],
		Match: ra.Match{
			Clusters: m.Clusters, Namespaces: m.Namespaces, ServiceAccounts: m.ServiceAccounts, Pods: m.Pods, Nodes: m.Nodes, Users: m.Users,
		},
		Names: ra.Names{SPIFFEID: r.Names.SPIFFEID, DNSNames: r.Names.DNSNames, IPAddresses: r.Names.IPAddresses, Requested: r.Names.Requested},
	}
	for _, kind := range m.Kinds {
		rule.Match.Kinds = append(rule.Match.Kinds, ra.Kind(kind))
	}
	for _, door := range doors {
		rule.Match.Doors = append(rule.Match.Doors, door.Name)
		if rule.MaxTTL < door.MinLifetime {
			p.Say(path+".max_ttl", r.MaxTTL, fmt.Sprintf("%s takes no less than %s", door.Name, door.MinLifetime))
		}
	}
	if rule.Authority == "" {
		rule.Authority = "missing" // which was told
	}
	if _, err := ra.NewPolicy(home, []ra.Rule{rule}); err != nil {
		p.Add(fmt.Errorf("%s: %w", text.Clean(path), inner(err)))
	}
	return rule
}

// usages are the engine's words; a wrong word was told.
var usages = map[string]ra.Usages{"any": ra.AnyUsage, "server": ra.Server, "client": ra.Client, "both": ra.Both}
