package config

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
)

// Notes returns what does not keep a service from starting, but may keep it from being of use.
func (c *Config) Notes(env environ.Vars) (all []string) {
	all = settings.OvertakenPins(env, c.Hosted())
	if c.Cluster.Kubeconfig == "" && env.Get("KUBERNETES_SERVICE_HOST") == "" {
		all = append(all, "cluster.kubeconfig is not set: serve needs a pod's account, and this is not a pod")
	}
	if _, err := os.Stat(c.Remotes.Folder); c.Remotes.Folder != "" && err != nil {
		all = append(all, fmt.Sprintf("remotes.folder: %s; serve waits for it", err))
	}
	for _, a := range c.Authorities {
		if !slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.Authority == a.Name }) {
			all = append(all, fmt.Sprintf("providers.%s: no rule uses it", a.Name))
		}
		if !slices.ContainsFunc(c.Signers, func(s Signer) bool { return s.TrustBundle.Authority == a.Name }) {
			all = append(all, fmt.Sprintf("signers: no trust_bundle has the roots of %s, so verifiers must get these roots another way", a.Name))
		}
	}
	for _, s := range c.Signers {
		if len(s.TrustBundle.BundleEndpoints) > 0 {
			all = append(all, fmt.Sprintf("signers.%s.trust_bundle.bundle_endpoints: a volume that selects the bundles of %s without %s trusts the roots of all these trust domains as its own", s.Name, s.Name, trustbundle.PeerLabel))
		}
	}
	all = append(all, c.ruleNotes()...)
	all = append(all, c.istioNotes()...)
	for setting, path := range map[string]string{"chain_file": c.PublishBundle.ChainFile, "key_file": c.PublishBundle.KeyFile} {
		if _, err := os.Stat(path); path != "" && err != nil {
			all = append(all, fmt.Sprintf("publish_bundle.%s: %s; serve waits for it", setting, err))
		}
	}
	if !c.LeaderElection.Enabled {
		all = append(all, "leader_election.enabled is false: never run a second replica, not even during an update")
	}
	return all
}

// budgetNotes explain what grows with the number of replicas, for machines that share an account.
func (c *Config) budgetNotes() (all []string) {
	b := c.Budget
	for _, r := range c.Rules {
		if !slices.Contains(r.Match.Requests, IstioRequests) {
			continue
		}
		burst, hour := uint64(b.Holder)*uint64(r.Holders), float64(r.Holders)*float64(time.Hour)/float64(b.HolderEvery.Duration)
		all = append(all, fmt.Sprintf("rules.%s.holders is %d: on each replica, the tokens of one account get %d certificates at once and %.0f an hour, so a caller that reaches N replicas gets N times that, as with budget and istio.limits; authorities[].limits are shared between replicas",
			r.Name, r.Holders, burst, hour))
	}
	return all
}

func (c *Config) istioNotes() (all []string) {
	if len(c.Istio.Issuers)+len(c.Istio.Renewals.Identities) > 0 {
		all = append(all, c.budgetNotes()...)
	}
	own := c.Istio.Certificate
	for setting, path := range map[string]string{"chain_file": own.ChainFile, "key_file": own.KeyFile} {
		if _, err := os.Stat(path); path != "" && err != nil {
			all = append(all, fmt.Sprintf("istio.certificate.%s: %s; serve waits for it", setting, err))
		}
	}
	if remotes := c.Remotes.Folder != "" || c.Remotes.Secrets; remotes && c.Istio.Enabled() {
		all = append(all, settings.GatewayNote("istio.limits", c.Istio.Limits.AuthenticationsOfAddress, c.Istio.Limits.ConnectionsOfAddress))
	}
	for i, issuer := range c.Istio.Issuers {
		if _, err := os.Stat(issuer.JWKSFile); issuer.JWKSFile != "" && err != nil {
			all = append(all, fmt.Sprintf("istio.issuers.%d.jwks_file: %s; serve waits for it", i, err))
		}
	}
	for _, a := range c.Authorities {
		serves := func(r Rule) bool {
			return r.Authority == a.Name && slices.Contains(r.Match.Requests, IstioRequests)
		}
		if !a.Roots.ByReply && slices.ContainsFunc(c.Rules, serves) {
			all = append(all, fmt.Sprintf("authorities.%s.roots.by_reply is false: proxies of a mesh learn a new root only with their next certificates", a.Name))
		}
	}
	for _, r := range c.Rules {
		longest := c.Istio.Renewals.Longest
		if longest.Duration > 0 && r.MaxTTL.Duration >= longest.Duration && slices.Contains(r.Match.Requests, IstioRequests) {
			all = append(all, fmt.Sprintf("istio.renewals.longest is %s: certificates of rules.%s may last as long, and are not renewed without a token then", longest, r.Name))
		}
	}
	slices.Sort(all)
	return all
}
