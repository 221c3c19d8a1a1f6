package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// WorkloadAPI serves the SPIFFE Workload API to the peers that socket allows; with workloads, each
// gets the identity of its entry in workloads.peers. Identities and
// Federated, which need no Socket, also have their SPIFFE IDs as names in SDS.
type WorkloadAPI struct {
	// Socket is a unix socket; workloads find it by
	// SPIFFE_ENDPOINT_SOCKET=unix://<absolute path>. It may be socket.path, to have both on one
	// socket. Default: off.
	Socket string `json:"socket"`
	// Identities lists what a workload gets, in order: it uses the first by default. With
	// workloads, it gets its own. Default: the secret "default".
	Identities []WorkloadIdentity `json:"identities"`
	// Federated maps foreign trust domains to the trust bundles that verify their peers.
	// Default: those of bundle_endpoints.
	Federated map[string]string `json:"federated"`
	// JWTSVID has a provider sign JWT-SVIDs for the identities. Default: none.
	JWTSVID JWTSVID `json:"jwt_svid"`
}

// JWTSVID configures who signs JWT-SVIDs and for which services.
type JWTSVID struct {
	// Provider signs them; its keys are those of the identities' trust domains. It needs the
	// ability jwt-svid. Default: default_provider.
	Provider string `json:"provider"`
	// Audiences are those that workloads may ask for, each as a whole or as its beginning
	// followed by *. Required.
	Audiences []string `json:"audiences"`
	// TTL is the lifetime to request: 30s to 1h. Default: 5m.
	TTL Duration `json:"ttl"`
}

// On reports whether JWT-SVIDs are served.
func (j JWTSVID) On() bool { return len(j.Audiences) > 0 || j.Provider != "" || j.TTL.Duration != 0 }

// SignsJWT reports whether an entry of the providers signs JWT-SVIDs. The configuration need not be
// complete.
func (c *Config) SignsJWT(entry string) bool {
	return c.WorkloadAPI.JWTSVID.On() && c.signsTokens(entry)
}

// SignsWIT does it for WIT-SVIDs.
func (c *Config) SignsWIT(entry string) bool { return c.ServesWIT() && c.signsTokens(entry) }

func (c *Config) signsTokens(entry string) bool {
	name := c.WITProvider()
	return name == entry || name == "" && len(c.Providers) == 1
}

// WorkloadIdentity is a secret with a SPIFFE ID.
type WorkloadIdentity struct {
	Name string `json:"name"`
	// Bundle is the trust bundle of its trust domain. Default: ROOTCA.
	Bundle string `json:"bundle"`
	// Hint distinguishes this identity from others, such as internal. Default: none.
	Hint string `json:"hint"`
}

// completeWorkloadAPI runs after the secrets, to which it refers.
func (c *Config) completeWorkloadAPI(p *problems) {
	w := &c.WorkloadAPI
	if w.Socket == "" && w.JWTSVID.On() && !c.Broker.On() {
		c.say(p, "workload_api.socket", "", "write the path of a unix socket, or leave workload_api.jwt_svid out")
	}
	if w.Socket != "" {
		c.checkSharedSocket(p)
		if len(w.Identities) == 0 && !c.Workloads.On() {
			w.Identities = []WorkloadIdentity{{Name: DefaultSecret}}
		}
	}
	hints, names := map[string]bool{"": false}, map[string]bool{}
	for i := range w.Identities {
		c.completeIdentity(p, &w.Identities[i], i, hints, names)
	}
	for _, domain := range slices.Sorted(maps.Keys(w.Federated)) {
		if err := pki.CheckTrustDomain(domain); err != nil {
			p.add(fmt.Errorf("workload_api.federated: %w", err))
			continue
		}
		c.refer(p, "workload_api.federated."+domain, w.Federated[domain], TrustBundle)
	}
	c.completeJWTSVID(p, &w.JWTSVID)
	c.completeExperimental(p)
}

// The experiments.
const (
	// WITSVID has the Workload API serve WIT-SVIDs.
	WITSVID = "wit-svid"
	// WITBundle has publish_bundle publish their keys, which SPIRE refuses with the whole bundle.
	WITBundle = "wit-bundle"
)

// ServesWIT reports whether the Workload API has WIT-SVIDs.
func (c *Config) ServesWIT() bool { return slices.Contains(c.Experimental, WITSVID) }

// PublishesWIT reports whether the published bundle has the keys of WIT-SVIDs.
func (c *Config) PublishesWIT() bool { return slices.Contains(c.Experimental, WITBundle) }

// WITProvider is the name of the provider that signs WIT-SVIDs.
func (c *Config) WITProvider() string {
	return cmp.Or(c.WorkloadAPI.JWTSVID.Provider, c.DefaultProvider)
}

func (c *Config) completeExperimental(p *problems) {
	for _, name := range c.Experimental {
		if name != WITSVID && name != WITBundle {
			c.say(p, "experimental", name, "this version has "+WITSVID+" and "+WITBundle)
		}
	}
	if c.PublishesWIT() && (!c.ServesWIT() || c.PublishBundle.Address == "") {
		c.say(p, "experimental", WITBundle, "publish_bundle publishes the keys of "+WITSVID+"; write both")
	}
	switch {
	case !c.ServesWIT():
	case c.WorkloadAPI.Socket == "":
		c.say(p, "experimental", WITSVID, "the Workload API serves WIT-SVIDs; write workload_api.socket")
	default:
		c.warn("experimental has %s, which follows drafts: a later version may change or drop it without notice", WITSVID)
	}
	if c.PublishesWIT() {
		c.warn("experimental has %s: SPIRE 1.15 refuses a published bundle that has keys of WIT-SVIDs", WITBundle)
	}
}

func (c *Config) completeJWTSVID(p *problems, j *JWTSVID) {
	if !j.On() {
		return
	}
	j.Provider = cmp.Or(j.Provider, c.DefaultProvider)
	j.TTL.Duration = cmp.Or(j.TTL.Duration, 5*time.Minute)
	if !slices.Contains(c.providerNames(), j.Provider) {
		c.say(p, "workload_api.jwt_svid.provider", j.Provider, "write the name of a provider: "+strings.Join(c.providerNames(), ", "))
	}
	if err := jwtsvid.CheckAudiences(j.Audiences); err != nil {
		p.add(fmt.Errorf("workload_api.jwt_svid.audiences: %w", err))
	}
	if err := jwtsvid.CheckTTL(j.TTL.Duration); err != nil {
		c.say(p, "workload_api.jwt_svid.ttl", j.TTL.String(), err.Error())
	}
}

// checkSharedSocket checks a socket that is that of SDS, too.
func (c *Config) checkSharedSocket(p *problems) {
	w, path := c.WorkloadAPI, "workload_api.socket"
	switch {
	case w.Socket == c.Socket.Path && c.foreign != nil:
		c.say(p, path, w.Socket, c.foreignRule()+"; write another path")
	case w.Socket == c.Socket.FilesPath && c.ListenPath() != c.Socket.FilesPath:
		c.say(p, path, w.Socket, "that is socket.files_path; write another path, or socket.path")
	}
}

func (c *Config) completeIdentity(p *problems, w *WorkloadIdentity, i int, hints, names map[string]bool) {
	if w.Name == "" {
		c.say(p, fmt.Sprintf("workload_api.identities.%d.name", i), "", "write the name of a secret")
		return
	}
	path := "workload_api.identities." + text.Clean(w.Name)
	w.Bundle = cmp.Or(w.Bundle, RootCA)
	if names[w.Name] {
		p.add(fmt.Errorf("workload_api.identities has %.256q twice", w.Name))
	}
	if hints[w.Hint] {
		c.say(p, path+".hint", w.Hint, "duplicate hint; give each identity its own")
	}
	names[w.Name], hints[w.Hint] = true, w.Hint != ""
	c.refer(p, path+".name", w.Name, KeyPair)
	c.refer(p, path+".bundle", w.Bundle, TrustBundle)
}

// refer checks that a secret of that kind is configured, and that a key pair has a SPIFFE
// ID. It does not check secrets of other programs.
func (c *Config) refer(p *problems, path, name, kind string) {
	i := c.find(name)
	switch {
	case i < 0 && c.FromOthers(name):
	case i < 0 && kind == TrustBundle && c.fromEndpoint(name):
	case i < 0:
		c.say(p, path, name, "no secret of that name is configured")
	case c.Secrets[i].Kind != kind:
		c.say(p, path, name, "this secret is a "+c.Secrets[i].Kind+"; name a "+kind)
	case kind == KeyPair && c.Secrets[i].SPIFFEID == "":
		c.say(p, path, name, "the secret has no spiffe_id, which the Workload API needs")
	}
}
