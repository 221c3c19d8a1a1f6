package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// SpireProvider is the name of the Workload API among the providers of a secret.
const SpireProvider = "spire"

// Spire takes secrets from a SPIFFE Workload API, such as the one of SPIRE's agent.
type Spire struct {
	// Socket is the Workload API's unix socket, as a path or as in
	// SPIFFE_ENDPOINT_SOCKET (unix:///path). Default: off.
	Socket string `json:"socket"`
	// UIDs are users who may serve the socket, in addition to the agent's user and root.
	UIDs []uint32 `json:"uids"`
	// Secrets are taken from it, under these names. Default: "default", the first
	// X.509-SVID, and "ROOTCA", its trust bundle; none if "spire" is one of the providers of
	// a secret.
	Secrets []SpireSecret `json:"secrets"`
}

// SpireSecret is one X.509-SVID, or one trust bundle.
type SpireSecret struct {
	Name string `json:"name"`
	// Kind is key-pair or trust-bundle. Default: key-pair; trust-bundle for ROOTCA.
	Kind string `json:"kind"`
	// SPIFFEID selects the X.509-SVID with this ID, and accepts no other. Default: the first
	// one, whatever its ID; for a trust bundle as for "default".
	SPIFFEID string `json:"spiffe_id"`
	// Hint selects the X.509-SVID with this hint, such as internal. Default: any.
	Hint string `json:"hint"`
	// TrustDomain selects a trust bundle by its trust domain, which may be a federated one.
	// Default: that of the X.509-SVID.
	TrustDomain string `json:"trust_domain"`

	rule string // why it exists if the file does not set it
}

// completeSpire runs before the files: what it names is not taken from mounted ones.
func (c *Config) completeSpire(p *problems) {
	s := &c.Spire
	wanted := len(c.fromSpire()) > 0
	isProvider := slices.Contains(c.providerNames(), SpireProvider)
	if s.Socket == "" {
		if len(s.Secrets)+len(s.UIDs) > 0 || wanted && !isProvider {
			c.say(p, "spire.socket", "", "write the path of a SPIFFE Workload API's unix socket, or leave spire out")
		}
		return
	}
	c.checkSpireSocket(p)
	if wanted && isProvider {
		p.add(fmt.Errorf("providers.%s: that is the name of the Workload API at spire.socket; give the provider another", SpireProvider))
	}
	if len(s.Secrets) == 0 && !wanted {
		const rule = "spire.socket is set"
		s.Secrets = []SpireSecret{{Name: DefaultSecret, rule: rule}, {Name: RootCA, rule: rule}}
	}
	for i := range s.Secrets {
		c.completeSpireSecret(p, &s.Secrets[i], i)
	}
	c.completeSpireRoots()
}

func (c *Config) checkSpireSocket(p *problems) {
	if s := c.Spire.Socket; s == c.Socket.Path || s == c.Socket.FilesPath || s == c.WorkloadAPI.Socket {
		c.say(p, "spire.socket", s, "the agent itself serves there")
	}
}

func (c *Config) completeSpireSecret(p *problems, s *SpireSecret, i int) {
	if s.Name == "" || len(s.Name) > maxSecretName || strings.HasPrefix(s.Name, "file-") {
		c.say(p, fmt.Sprintf("spire.secrets.%d.name", i), s.Name, fmt.Sprintf("write 1 to %d bytes that do not begin with file-", maxSecretName))
		return
	}
	path := "spire.secrets." + text.Clean(s.Name)
	s.Kind = cmp.Or(s.Kind, usualKind(s.Name))
	c.oneOf(p, path+".kind", s.Kind, KeyPair, TrustBundle)
	switch {
	case s.Name == DefaultSecret && s.Kind == TrustBundle, s.Name == RootCA && s.Kind == KeyPair:
		p.add(fmt.Errorf("%s: clients expect a key-pair by the name default and a trust-bundle by the name ROOTCA", path))
	case s.TrustDomain != "" && s.Kind == KeyPair:
		c.say(p, path+".trust_domain", s.TrustDomain, "it selects a trust bundle; select a key pair by spiffe_id or hint")
	case s.TrustDomain != "" && s.SPIFFEID+s.Hint != "":
		p.add(fmt.Errorf("%s: write either trust_domain, or spiffe_id and hint", path))
	case c.configured(s.Name):
		p.add(fmt.Errorf("%.256q is both in secrets and in spire.secrets: use each name once", s.Name))
	case slices.ContainsFunc(c.Files.Secrets, func(other FileSecret) bool { return other.Name == s.Name }):
		p.add(fmt.Errorf("%.256q is both in files.secrets and in spire.secrets: use each name once", s.Name))
	case slices.ContainsFunc(c.Spire.Secrets[:i], func(other SpireSecret) bool { return other.Name == s.Name }):
		p.add(fmt.Errorf("spire.secrets has %.256q twice: use each name once", s.Name))
	}
	if s.SPIFFEID != "" {
		if _, err := pki.ParseSPIFFEID(s.SPIFFEID); err != nil {
			c.say(p, path+".spiffe_id", s.SPIFFEID, err.Error())
		}
	}
	if s.TrustDomain != "" {
		if err := pki.CheckTrustDomain(s.TrustDomain); err != nil {
			c.say(p, path+".trust_domain", s.TrustDomain, err.Error())
		}
	}
}

// completeSpireRoots gives a ROOTCA without a selection that of "default": peers of the
// workload are in its trust domain.
func (c *Config) completeSpireRoots() {
	find := func(name string) int {
		return slices.IndexFunc(c.Spire.Secrets, func(s SpireSecret) bool { return s.Name == name })
	}
	pair, roots := find(DefaultSecret), find(RootCA)
	if pair < 0 || roots < 0 {
		return
	}
	if r := &c.Spire.Secrets[roots]; r.TrustDomain+r.SPIFFEID+r.Hint == "" {
		r.SPIFFEID, r.Hint = c.Spire.Secrets[pair].SPIFFEID, c.Spire.Secrets[pair].Hint
	}
}

// spireRule names what an unset setting of an entry is derived from.
func spireRule(path string) string {
	switch {
	case strings.HasSuffix(path, ".kind"):
		return "its name"
	case strings.HasPrefix(path, "spire.secrets."+RootCA+"."):
		return "spire.secrets." + DefaultSecret
	}
	return "spire.socket"
}

// Names returns the names that are taken from the Workload API, sorted.
func (s Spire) Names() []string {
	var names []string
	for _, one := range s.Secrets {
		names = append(names, one.Name)
	}
	slices.Sort(names)
	return names
}

// FromSpire reports whether a name is taken from a Workload API.
func (c *Config) FromSpire(name string) bool {
	return slices.ContainsFunc(c.Spire.Secrets, func(s SpireSecret) bool { return s.Name == name })
}

// FromOthers reports whether other programs provide a name, in files or over a Workload API.
func (c *Config) FromOthers(name string) bool { return c.FromFiles(name) || c.FromSpire(name) }

// namesSpire reports whether the Workload API is among the providers.
func (s Secret) namesSpire() bool {
	return s.Provider == SpireProvider || slices.Contains(s.Providers, SpireProvider)
}

// fromSpire returns the secrets that the Workload API signs or has roots for, beside others.
func (c *Config) fromSpire() []Secret {
	return slices.DeleteFunc(slices.Clone(c.Secrets), func(s Secret) bool { return !s.namesSpire() })
}

// SpireProvides returns the secrets that have the Workload API as one of their providers, key
// pairs first, sorted; of a complete configuration.
func (c *Config) SpireProvides() (all []SpireSecret) {
	if c.Spire.Socket == "" {
		return nil // a provider may have that name
	}
	for _, s := range c.fromSpire() {
		all = append(all, SpireSecret{Name: s.Name, Kind: s.Kind, SPIFFEID: s.SPIFFEID})
	}
	slices.SortFunc(all, func(a, b SpireSecret) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return all
}

// spireAlone reports whether no provider has to sign the secret.
func (c *Config) spireAlone(name string) bool {
	i := c.find(name)
	if i < 0 || c.Secrets[i].Provider == "" && len(c.Secrets[i].Providers) == 0 {
		return name == RootCA && c.spireAlone(DefaultSecret) // it has the providers of default
	}
	return c.Spire.Socket != "" && c.Secrets[i].namesSpire() && len(c.Secrets[i].Providers) <= 1
}

// checkSpirePair: an X.509-SVID is selected by the SPIFFE ID that a CA would be asked for.
func (c *Config) checkSpirePair(p *problems, s *Secret, path string) {
	if c.Spire.Socket != "" && s.namesSpire() && s.SPIFFEID == "" {
		c.say(p, path+".spiffe_id", "", "write the SPIFFE ID of the X.509-SVID that the Workload API sends")
	}
}

// source returns where a secret of a Workload API comes from.
func (s SpireSecret) source(socket string) Source {
	return Source{Name: s.Name, Kind: s.Kind, Socket: socket, Rule: cmp.Or(s.rule, "spire.secrets names it")}
}
