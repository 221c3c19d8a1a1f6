package config

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Workloads makes the agent serve many workloads of a machine: each stream has its own
// identity, by its token or by the user at the other end of the socket, and "default" is the
// certificate of that identity. It is on if verified_by or peers is set, or the Broker API is served.
type Workloads struct {
	// VerifiedBy is how the token of a stream is verified: jwks, by the agent with the
	// issuer's keys; token_review, by a Kubernetes API server; authority, by the CA of
	// "default", which gets the token with the request. That CA must verify the token:
	// one that signs without doing so would grant every identity that is claimed.
	// Default: none, tokens are not accepted.
	VerifiedBy  string              `json:"verified_by"`
	JWKS        WorkloadJWKS        `json:"jwks"`
	TokenReview WorkloadTokenReview `json:"token_review"`
	// SPIFFEID is the SPIFFE ID to request, with a token's claims in braces. Default:
	// spiffe://<trust_domain>/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}.
	SPIFFEID string `json:"spiffe_id"`
	// Peers are users that need no token, at the sockets of SDS and of the Workload API, and the
	// processes that brokers refer to: the first entry that fits is who it is. The users may connect;
	// requests for them carry the provider's own token, if there is one. Default: none.
	Peers []WorkloadPeer `json:"peers"`
	// Limits bound the agent; the error of a rejected stream names the limit.
	Limits WorkloadLimits `json:"limits"`

	// Brokered means that the Broker API is served.
	Brokered bool `json:"-"`
}

// WorkloadPeer is a user of this machine and the identity of its workloads.
type WorkloadPeer struct {
	UID uint32 `json:"uid"`
	// GID is the primary group, too. Default: any.
	GID *uint32 `json:"gid"`
	// Executable is the program's file on this machine, and Cgroup the path in cgroup v2 of the process
	// or of a group around it, such as /system.slice/web.service. An entry with one of them is for
	// callers of the Workload API and the processes of brokers, not for SDS. Default: any.
	Executable string `json:"executable"`
	Cgroup     string `json:"cgroup"`
	SPIFFEID   string `json:"spiffe_id"`
}

// Held reports whether the entry is for processes that are held, so not for streams of SDS.
func (w WorkloadPeer) Held() bool { return w.Executable != "" || w.Cgroup != "" }

// covers reports whether an entry fits all processes that another one fits.
func (w WorkloadPeer) covers(other WorkloadPeer) bool {
	group := w.GID == nil || other.GID != nil && *w.GID == *other.GID
	program := w.Executable == "" || w.Executable == other.Executable
	cgroup := w.Cgroup == "" || w.Cgroup == other.Cgroup
	return w.UID == other.UID && group && program && cgroup
}

// WorkloadLimits bound an agent of many identities.
type WorkloadLimits struct {
	Identities uint32 `json:"identities"` // Default: 10000.
	Streams    uint32 `json:"streams"`    // of one identity, without those of brokers. Default: 100.
	Requests   uint32 `json:"requests"`   // to the CA at once. Default: 16.
	Names      uint32 `json:"names"`      // on one stream. Default: 16.
	// RefusedTokens is how many tokens of one process may have been rejected in the last 2
	// minutes before its further tokens are no longer tried. All processes of one uid may
	// together have 4 times as many. Default: 16.
	RefusedTokens uint32 `json:"refused_tokens"`
}

// What Workloads.VerifiedBy may be.
const (
	ByAuthority   = "authority"
	ByJWKS        = "jwks"
	ByTokenReview = "token_review"
)

func defaultWorkloads() Workloads {
	return Workloads{Limits: WorkloadLimits{Identities: 10_000, Streams: 100, Requests: 16, Names: 16, RefusedTokens: 16}}
}

// On reports whether each stream has its own identity.
func (w Workloads) On() bool { return w.VerifiedBy != "" || len(w.Peers) > 0 || w.Brokered }

// completeWorkloads fills in what follows from the rest, and checks it.
func (c *Config) completeWorkloads(p *problems) {
	w := &c.Workloads
	if !w.On() {
		c.refuseStray(p)
		return
	}
	switch {
	case w.VerifiedBy != "":
		c.oneOf(p, "workloads.verified_by", w.VerifiedBy, ByAuthority, ByJWKS, ByTokenReview)
		if template := c.completeTemplate(p); template != nil {
			p.check(w.checkVerifier(template))
		}
	case c.Broker.Uses(ReferenceKubernetes):
		c.completeTemplate(p)
	case w.SPIFFEID != "":
		c.say(p, "workloads.spiffe_id", w.SPIFFEID, "it has no effect unless tokens are verified; set workloads.verified_by, or remove it")
	}
	for i := range w.Peers {
		c.checkPeer(p, i)
	}
	c.checkWorkloads(p)
	c.refuseCommon(p)
	c.Files.Mounted, c.Files.Folders = MountedOff, nil
}

// checkSigner rejects a CA that is known not to verify tokens where it would have to.
func (c *Config) checkSigner(p *problems) {
	if c.Workloads.VerifiedBy != ByAuthority || c.FromOthers(DefaultSecret) {
		return
	}
	for _, entry := range c.Providers {
		if entry.binary() == fileProvider && slices.Contains(c.Secrets[0].Providers, entry.Name) {
			c.say(p, "workloads.verified_by", ByAuthority, fmt.Sprintf("the provider %q (%s) does not verify tokens, so every claimed identity would be granted", entry.Name, fileProvider))
		}
	}
}

// NeedRestart returns the changed settings that an agent of many workloads cannot apply
// while it runs, in addition to those of every agent.
func (w Workloads) NeedRestart(changed []string) []string {
	if !w.On() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(changed), func(path string) bool {
		return path != "ttl" && path != "key_type" && !strings.HasPrefix(path, "rotation.") && !strings.HasPrefix(path, "secrets."+DefaultSecret)
	})
}

func (c *Config) completeTemplate(p *problems) *identities.Template {
	w := &c.Workloads
	if w.SPIFFEID == "" {
		if !c.checkTrustDomain(p) {
			return nil
		}
		w.SPIFFEID = "spiffe://" + c.TrustDomain + "/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}"
	}
	template, err := identities.ParseTemplate(w.SPIFFEID)
	if err != nil {
		p.add(fmt.Errorf("workloads.spiffe_id: %w", err))
		return nil
	}
	return template
}

func (c *Config) checkPeer(p *problems, i int) {
	at, peer := fmt.Sprintf("workloads.peers.%d", i), c.Workloads.Peers[i]
	if peer.SPIFFEID == "" {
		c.say(p, at+".spiffe_id", "", "write the SPIFFE ID of this user's workloads")
		return
	}
	if _, err := pki.ParseSPIFFEID(peer.SPIFFEID); err != nil {
		p.add(fmt.Errorf("%s: %w", at, err))
	}
	if slices.ContainsFunc(c.Workloads.Peers[:i], func(other WorkloadPeer) bool { return other.covers(peer) }) {
		c.say(p, at+".uid", peer.UID, "write each user once: an entry before this one fits the same processes")
	}
	if peer.Held() && !c.Broker.Uses(ReferencePID) && c.WorkloadAPI.Socket == "" {
		c.say(p, at+".uid", peer.UID, "executable and cgroup are for callers of the Workload API and the processes of brokers; set workload_api.socket or broker, or remove them")
	}
	if peer.Executable != "" && !filepath.IsAbs(peer.Executable) {
		c.say(p, at+".executable", peer.Executable, "write an absolute path")
	}
	if peer.Cgroup != "" && (peer.Cgroup[0] != '/' || peer.Cgroup == "/" || path.Clean(peer.Cgroup) != peer.Cgroup) {
		c.say(p, at+".cgroup", peer.Cgroup, "write a path that begins with /, such as /system.slice/web.service")
	}
}

func (c *Config) checkWorkloads(p *problems) {
	w := c.Workloads
	for name, n := range map[string]uint32{
		"identities": w.Limits.Identities, "streams": w.Limits.Streams, "requests": w.Limits.Requests, "names": w.Limits.Names,
		"refused_tokens": w.Limits.RefusedTokens,
	} {
		if n == 0 || n > 1_000_000 {
			c.say(p, "workloads.limits."+name, n, "write 1 to 1000000")
		}
	}
}

// refuseCommon rejects what would be served to every stream but does not belong to all.
func (c *Config) refuseCommon(p *problems) {
	const own = "with workloads, each stream has its own identity; remove it"
	for _, s := range c.Secrets {
		switch {
		case s.Name == DefaultSecret && s.SPIFFEID+strings.Join(s.DNSNames, "")+strings.Join(s.IPAddresses, "") != "":
			p.add(fmt.Errorf("secrets.%s has an identity: %s", DefaultSecret, own))
		case s.Name == DefaultSecret && len(s.Providers) > 1:
			c.say(p, "secrets."+DefaultSecret+".providers", s.Providers, "with workloads, exactly one provider signs")
		case s.Name != DefaultSecret && s.Name != RootCA && s.Kind != TrustBundle:
			p.add(fmt.Errorf("secrets.%s is a key pair: %s", text.Clean(s.Name), own))
		}
	}
	if len(c.Files.Secrets) > 0 {
		p.add(fmt.Errorf("files.secrets has %.256q: with workloads, nothing is served from files, as every workload could read it; remove it", c.Files.Secrets[0].Name))
	}
	if c.Spire.Socket != "" {
		c.say(p, "spire.socket", c.Spire.Socket, "with workloads, nothing is taken from a Workload API, as every workload would get this agent's identity; remove it")
	}
	c.oneOf(p, "files.mounted", c.Files.Mounted, MountedOff, MountedAuto)
	if c.WorkloadAPI.Socket != "" && len(c.Workloads.Peers) == 0 {
		c.say(p, "workload_api.socket", c.WorkloadAPI.Socket, "its calls carry no token: with workloads, add the users and programs that it is for to workloads.peers, or remove it")
	}
	if len(c.WorkloadAPI.Identities) > 0 {
		p.add(fmt.Errorf("workload_api.identities: %s", own))
	}
	if len(c.Outputs) > 0 {
		p.add(fmt.Errorf("outputs.%s: with workloads, nothing is written to files, as the agent has no identity of its own; remove it", text.Clean(c.Outputs[0].Name)))
	}
}

// refuseStray rejects settings of workloads that are off.
func (c *Config) refuseStray(p *problems) {
	w := c.Workloads
	if w.SPIFFEID != "" || isSet(w.JWKS) || isSet(w.TokenReview) {
		p.add(fmt.Errorf("workloads is off: set workloads.verified_by to %s, %s or %s, set workloads.peers, or remove it", ByAuthority, ByJWKS, ByTokenReview))
	}
}
