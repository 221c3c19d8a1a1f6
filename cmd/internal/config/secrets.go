package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// The two names that every Envoy of a mesh asks for, as Istio's agent has them.
const (
	DefaultSecret = "default"
	RootCA        = "ROOTCA"
)

// The kinds of secret.
const (
	KeyPair     = "key-pair"
	TrustBundle = "trust-bundle"
)

const maxSecretName = 256

// completeSecrets makes "default" the first and "ROOTCA" the second of c.Secrets,
// fills in every entry and checks it.
func (c *Config) completeSecrets(p *problems) {
	rules := c.Rules()
	c.Secrets = c.Named()
	c.absent = c.withoutIdentity(rules)
	secrets := []Secret{c.take(DefaultSecret), c.take(RootCA)}
	c.Secrets = c.signed(append(secrets, c.Secrets...))
	c.places = make(map[string]int, len(c.Secrets))
	for i, s := range c.Secrets {
		if _, seen := c.places[s.Name]; seen {
			p.add(fmt.Errorf("secrets has %.256q twice: a name is served once", s.Name))
		}
		c.places[s.Name] = i
	}
	for i := range c.Secrets {
		c.completeSecret(p, &c.Secrets[i], i)
	}
	c.completeRules(p, rules)
	c.Secrets = append(c.Secrets, rules...)
}

// find returns the place of the secret of that name in c.Secrets, or -1. Each output and each
// identity names some, so that a search through all would cost the square.
func (c *Config) find(name string) int {
	if c.places == nil {
		return slices.IndexFunc(c.Secrets, func(s Secret) bool { return s.Name == name })
	}
	if i, known := c.places[name]; known {
		return i
	}
	return -1
}

// take removes the entry of that name from c.Secrets, or makes one.
func (c *Config) take(name string) Secret {
	c.places = nil
	i := c.find(name)
	if i < 0 {
		return Secret{Name: name}
	}
	s := c.Secrets[i]
	c.Secrets = slices.Delete(slices.Clone(c.Secrets), i, i+1)
	return s
}

func (c *Config) completeSecret(p *problems, s *Secret, i int) {
	if s.Name == "" || len(s.Name) > maxSecretName || strings.ContainsFunc(s.Name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		c.say(p, fmt.Sprintf("secrets.%d.name", i-2), s.Name, fmt.Sprintf("write 1 to %d bytes without control characters", maxSecretName))
		return
	}
	path := "secrets." + s.Name
	if s.OnDemand.isSet() {
		p.add(fmt.Errorf("%s.on_demand needs match or match_file: write one of them, or remove it", path))
	}
	c.completeKind(p, s, path)
	switch s.Kind {
	case KeyPair:
		c.completeKeyPair(p, s, path)
	case TrustBundle:
		c.completeBundle(p, s, path)
	default:
		c.oneOf(p, path+".kind", s.Kind, KeyPair, TrustBundle)
	}
}

func (c *Config) completeKind(p *problems, s *Secret, path string) {
	usual := usualKind(s.Name)
	s.Kind = cmp.Or(s.Kind, usual)
	if s.Kind != usual && (s.Name == RootCA || s.Name == DefaultSecret) {
		c.say(p, path+".kind", s.Kind, "clients expect a "+usual+" by that name; use another name")
	}
}

func usualKind(name string) string {
	if name == RootCA {
		return TrustBundle
	}
	return KeyPair
}

func (c *Config) completeKeyPair(p *problems, s *Secret, path string) {
	c.completeProviders(p, s, path)
	if s.FallbackAfter.Duration == 0 {
		s.FallbackAfter = seconds(30)
	} else if s.FallbackAfter.Duration < 0 {
		c.say(p, path+".fallback_after", s.FallbackAfter, "write more than 0s")
	}
	own := s.Name == DefaultSecret && c.Workloads.On() // each stream has one of its own
	if s.Name == DefaultSecret && !own && s.SPIFFEID == "" && len(s.DNSNames)+len(s.IPAddresses) == 0 {
		s.SPIFFEID = c.workloadID(p)
	} else if s.Name == DefaultSecret && !own && s.SPIFFEID == "" && c.Namespace != "" && c.ServiceAccount != "" {
		c.warn("secrets.%s has dns_names or ip_addresses and no spiffe_id: its certificate will have no SPIFFE ID, although namespace and service_account are set; write spiffe_id if it needs one", DefaultSecret)
	}
	c.checkIdentity(p, s, path)
	c.checkSpirePair(p, s, path)
	c.completeKey(p, s, path)
}

// completeKey fills in the type of key and the lifetime.
func (c *Config) completeKey(p *problems, s *Secret, path string) {
	if s.KeyType == "" {
		s.KeyType = c.KeyType
	} else if _, err := pki.ParseKeyType(s.KeyType); err != nil {
		c.say(p, path+".key_type", s.KeyType, keyTypeFault(s.KeyType, err))
	}
	switch {
	case s.TTL.Duration == 0:
		s.TTL = c.TTL
	case s.TTL.Duration < minTTL:
		c.say(p, path+".ttl", s.TTL, "write 1s or more")
	}
}

func (c *Config) checkIdentity(p *problems, s *Secret, path string) {
	identity, err := pki.NewIdentity(s.SPIFFEID, s.DNSNames, s.IPAddresses)
	switch {
	case err != nil:
		p.add(fmt.Errorf("%s: %w", path, err))
	case identity.IsZero() && s.Name != DefaultSecret: // workloadID has reported default
		p.add(fmt.Errorf("%s has no identity: write spiffe_id, dns_names or ip_addresses", path))
	}
}

// workloadID makes the SPIFFE ID of "default" as Istio does.
func (c *Config) workloadID(p *problems) string {
	if c.Namespace == "" || c.ServiceAccount == "" {
		p.add(fmt.Errorf("secrets.%s has no identity: set namespace and service_account (POD_NAMESPACE and SERVICE_ACCOUNT), or write an entry of that name below \"secrets\" with spiffe_id, dns_names or ip_addresses", DefaultSecret))
		return ""
	}
	return c.accountID(p, "", c.Namespace, c.ServiceAccount)
}

// accountID makes the SPIFFE ID of a Kubernetes service account; empty if one of its parts
// could bring in other segments. path is where the account is set.
func (c *Config) accountID(p *problems, path, namespace, account string) string {
	sound := c.checkTrustDomain(p)
	for setting, value := range map[string]string{"namespace": namespace, "service_account": account} {
		if strings.Contains(value, "/") {
			c.say(p, path+setting, value, "write one name, without /")
			sound = false
		}
	}
	if !sound {
		return ""
	}
	return fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", c.TrustDomain, namespace, account)
}

func (c *Config) checkTrustDomain(p *problems) bool {
	if pki.CheckTrustDomain(c.TrustDomain) == nil {
		return true
	}
	c.say(p, "trust_domain", c.TrustDomain, "write lower-case letters, digits, '.', '-' and '_'")
	return false
}

func (c *Config) completeBundle(p *problems, s *Secret, path string) {
	if s.SPIFFEID != "" || len(s.DNSNames)+len(s.IPAddresses) > 0 || s.KeyType != "" || s.TTL.Duration != 0 {
		p.add(fmt.Errorf("%s is a trust bundle: it has no identity, key_type or ttl of its own; remove them", path))
	}
	if s.FallbackAfter.Duration != 0 {
		c.say(p, path+".fallback_after", s.FallbackAfter, "remove it: a trust bundle unites the roots of its providers")
	}
	// Peers of the workload are verified with the roots of the providers that may sign for it,
	// not with those of every provider.
	if s.Provider == "" && len(s.Providers) == 0 && s.Name == RootCA {
		s.Providers = c.Secrets[0].Providers
	}
	c.completeProviders(p, s, path)
	if s.Name == RootCA && c.FromOthers(DefaultSecret) {
		c.completeRootOrder(p, s)
	}
}

// completeRootOrder orders a certificate for its roots when default is not signed: some CAs return
// roots only with one. ROOTCA then has the workload's names.
func (c *Config) completeRootOrder(p *problems, s *Secret) {
	if c.Namespace != "" && c.ServiceAccount != "" {
		s.SPIFFEID, s.KeyType, s.TTL = c.accountID(p, "", c.Namespace, c.ServiceAccount), c.KeyType, c.TTL
		return
	}
	c.warn("%s comes from another program and %s does not: if %s returns its roots only with a certificate, as istiod does, there will be no %s; set namespace and service_account, so that one can be ordered, or pinned_roots, or provide the roots in a file",
		DefaultSecret, RootCA, strings.Join(s.Providers, ", "), RootCA)
}

// completeProviders makes one list of provider and providers.
func (c *Config) completeProviders(p *problems, s *Secret, path string) {
	switch {
	case len(s.Providers) > 0 && s.Provider != "":
		c.say(p, path+".provider", s.Provider, "write either provider or providers")
		return
	case len(s.Providers) == 0:
		s.Provider = c.provider(p, s.Provider, path)
		s.Providers = []string{s.Provider}
		return
	}
	seen := map[string]bool{}
	for _, name := range s.Providers {
		if c.provider(p, name, path); seen[name] {
			c.say(p, path+".providers", s.Providers, "write each provider once")
		}
		seen[name] = true
	}
}

// provider checks a secret's provider and returns the default for none.
func (c *Config) provider(p *problems, name, path string) string {
	names := c.providerNames()
	if c.Spire.Socket != "" {
		names = append(names, SpireProvider)
	}
	switch {
	case name == "" && c.DefaultProvider == "":
		c.say(p, path+".provider", "", "several providers are configured ("+strings.Join(names, ", ")+"); name one here or in default_provider")
	case name == "":
		return c.DefaultProvider
	case !slices.Contains(names, name):
		c.say(p, path+".provider", name, "configured are "+strings.Join(names, ", "))
	}
	return name
}
