package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/sdk/ondemand/budget"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
)

// OnDemand bounds what the names of a rule cost. Experimental.
type OnDemand struct {
	// Ask decides about each name before each order, renewals too. Required for the providers
	// acme, aws and google, unless the rule lists its names. Default: each name that matches may
	// have a certificate.
	Ask OnDemandAsk `json:"ask"`
	// Names is the most names that are held. With acme, aws and google, a new name is then refused;
	// else it replaces the one that has been unused for longest. Default: 10000.
	Names  uint32         `json:"names"`
	Budget OnDemandBudget `json:"budget"`
	// Cover names secrets, such as one for a wildcard. While the certificate of one is valid and
	// is for the name, it is served in place of an order. Default: none.
	Cover []string `json:"cover"`
	// Wait is the longest pause of a handshake. The order goes on after it. Default: 8s.
	Wait Duration `json:"wait"`
	// Idle is how long a name that no client uses is renewed. Envoy uses each name until it
	// restarts. Default: 30d.
	Idle Period `json:"idle"`
}

// OnDemandAsk is how it is decided whether a name may have a certificate: by one of these.
type OnDemandAsk struct {
	// URL is asked with GET and the query parameter domain. 2xx is yes; 4xx is no, but for 408 and
	// 429. Anything else is no answer: a new name waits, and a held one is renewed.
	URL string `json:"url"`
	// File has the patterns of the names that may, one in each line.
	File string `json:"file"`
	// Command is a program with its arguments, which gets the name as one more. Exit code 0 is yes,
	// 1 is no, anything else no answer.
	Command []string `json:"command"`
}

// OnDemandBudget bounds orders for new names, over restarts too if state is set.
type OnDemandBudget struct {
	// New is how many new names are ordered in a period, such as 10/min. Default of acme, aws and
	// google: 10/min; of others: no limit.
	New budget.Rate `json:"new"`
	// Burst is how many are ordered at once. Default: 20.
	Burst uint32 `json:"burst"`
	// PerRegisteredDomain bounds the new names below one domain that is registered with a public
	// suffix, such as example.co.uk. Default of acme, aws and google: 50/week; of others: no limit.
	PerRegisteredDomain budget.Rate `json:"per_registered_domain"`
}

// The defaults of a rule.
const (
	defaultOnDemandNames = 10_000
	defaultOnDemandWait  = 8 * time.Second
	defaultOnDemandIdle  = 30 * day
)

// costly are the providers whose CAs bill each certificate, or allow few.
var costly = []string{"acme", "aws", "google"}

// IsRule reports whether the entry is a rule for names that clients ask for.
func (s Secret) IsRule() bool { return len(s.Match) > 0 || s.MatchFile != "" }

// ruleName is the name of a rule that has no other.
func ruleName(match []string, file string) string {
	if len(match) > 0 {
		return match[0]
	}
	return file
}

// Named returns the secrets that have a name of their own.
func (c *Config) Named() []Secret {
	return slices.DeleteFunc(slices.Clone(c.Secrets), Secret.IsRule)
}

// Rules returns the rules for names that clients ask for.
func (c *Config) Rules() []Secret {
	return slices.DeleteFunc(slices.Clone(c.Secrets), func(s Secret) bool { return !s.IsRule() })
}

// Costly reports whether a provider's CA bills each certificate, or allows few.
func (c *Config) Costly(provider string) bool {
	i := slices.IndexFunc(c.Providers, func(p Provider) bool { return p.Name == provider })
	return i >= 0 && slices.Contains(costly, c.Providers[i].binary())
}

// isSet reports whether any of it is written.
func (o OnDemand) isSet() bool { return !reflect.ValueOf(o).IsZero() }

// withoutIdentity returns which of "default" and "ROOTCA" the agent does without: beside rules, none
// of them is needed where no setting gives the workload an identity.
func (c *Config) withoutIdentity(rules []Secret) (absent []string) {
	if len(rules) == 0 || c.find(DefaultSecret) >= 0 || c.Namespace+c.ServiceAccount != "" || c.Workloads.On() {
		return nil
	}
	absent = []string{DefaultSecret}
	if c.find(RootCA) < 0 {
		absent = append(absent, RootCA)
	}
	return absent
}

// completeRules fills in the rules and checks them.
func (c *Config) completeRules(p *problems, rules []Secret) {
	for i := range rules {
		c.completeRule(p, &rules[i])
		same := func(other Secret) bool { return other.Name == rules[i].Name }
		if c.configured(rules[i].Name) || slices.ContainsFunc(rules[:i], same) {
			p.add(fmt.Errorf("secrets has %.256q twice: write another name for the rule", rules[i].Name))
		}
	}
	c.checkOverlaps(p, rules)
	c.warnOfNames(rules)
	c.checkStoreUse(p, rules)
	switch {
	case len(rules) == 0:
	case c.Workloads.On():
		p.add(fmt.Errorf("secrets.%s has match: with workloads, each stream has its own identity and no other key pair; remove it", rules[0].Name))
	case !c.Socket.Enabled:
		c.say(p, "socket.enabled", false, "names that match secrets."+rules[0].Name+" are served there; set it to true")
	case c.State.Dir == "" && !c.Store.IsSet():
		c.warn("secrets.%s has match and state is not set: a restart orders a certificate for each name anew; set state.dir and state.key_file", rules[0].Name)
	}
}

// manyNames is how many names take more memory than is often there; each takes 12 kB.
const manyNames = 250_000

// warnOfNames warns of rules that may hold very many names together: names is a bound of each.
func (c *Config) warnOfNames(rules []Secret) {
	sum := 0
	for _, s := range rules {
		sum += int(s.OnDemand.Names)
	}
	if sum > manyNames {
		c.warn("the rules of secrets may hold %d names together, which take about %d GB of memory: lower on_demand.names", sum, sum*12/1_000_000)
	}
}

func (c *Config) completeRule(p *problems, s *Secret) {
	s.Name = cmp.Or(s.Name, ruleName(s.Match, s.MatchFile))
	path := "secrets." + s.Name
	if s.Name == DefaultSecret || s.Name == RootCA {
		c.say(p, path+".match", s.Match, "clients expect one secret by that name; write another name")
		return
	}
	s.Kind = cmp.Or(s.Kind, KeyPair)
	if s.Kind != KeyPair || s.SPIFFEID != "" || len(s.DNSNames)+len(s.IPAddresses) > 0 {
		p.add(fmt.Errorf("%s has match, so its certificates are key pairs with the name that a client asks for: remove kind, spiffe_id, dns_names and ip_addresses", path))
		return
	}
	if len(s.Providers) > 1 || s.namesSpire() || s.FallbackAfter.Duration != 0 {
		p.add(fmt.Errorf("%s has match: one provider signs, which is not %s; remove the others and fallback_after", path, SpireProvider))
		return
	}
	c.completeProviders(p, s, path)
	c.completeKey(p, s, path)
	if _, err := names.New(s.Match...); err != nil {
		c.say(p, path+".match", strings.Join(s.Match, ", "), err.Error())
		return
	}
	c.completeOnDemand(p, s, path)
}

func (c *Config) completeOnDemand(p *problems, s *Secret, path string) {
	o, path := &s.OnDemand, path+".on_demand"
	o.Names = cmp.Or(o.Names, defaultOnDemandNames)
	o.Wait.Duration = cmp.Or(o.Wait.Duration, defaultOnDemandWait)
	o.Idle.Duration = cmp.Or(o.Idle.Duration, defaultOnDemandIdle)
	if o.Names > maxOnDemandNames {
		c.say(p, path+".names", o.Names, fmt.Sprintf("write 1 to %d", maxOnDemandNames))
	}
	if w := o.Wait.Duration; w < 100*time.Millisecond || w > time.Minute {
		c.say(p, path+".wait", o.Wait, "write 100ms to 1m")
	}
	if o.Idle.Duration < time.Minute {
		c.say(p, path+".idle", o.Idle, "write 1m or more")
	}
	c.completeBudget(s.Providers, &o.Budget)
	c.checkAsk(p, *s, path+".ask")
	c.checkCover(p, o.Cover, path+".cover")
}

func (c *Config) completeBudget(providers []string, b *OnDemandBudget) {
	b.Burst = cmp.Or(b.Burst, 20)
	if len(providers) > 0 && c.Costly(providers[0]) {
		b.New = cmp.Or(b.New, budget.Rate{Count: 10, Every: time.Minute})
		b.PerRegisteredDomain = cmp.Or(b.PerRegisteredDomain, budget.Rate{Count: 50, Every: 7 * day})
	}
}

// checkCover refuses a name that is no key pair of the configuration. What files and SPIRE provide is
// not known here.
func (c *Config) checkCover(p *problems, cover []string, path string) {
	for i, name := range cover {
		switch at := c.find(name); {
		case name == RootCA, at >= 0 && c.Secrets[at].Kind == TrustBundle:
			c.say(p, path, name, "it has no certificate of its own; write a secret of kind "+KeyPair)
		case slices.Contains(cover[:i], name):
			c.say(p, path, name, "it is there twice; write it once")
		case at < 0 && !c.FromOthers(name):
			c.say(p, path, name, "no secret has that name; add it to secrets, or remove it here")
		}
	}
}

// maxOnDemandNames bounds what a rule may hold.
const maxOnDemandNames = 1_000_000

func (c *Config) checkAsk(p *problems, s Secret, path string) {
	ask := s.OnDemand.Ask
	switch ways := ask.ways(); {
	case ways > 1:
		p.add(fmt.Errorf("%s: write one of url, file and command", path))
	case ask.URL != "" && endpoint.CheckURL(ask.URL, true) != nil:
		c.say(p, path+".url", ask.URL, endpoint.CheckURL(ask.URL, true).Error())
	case len(ask.Command) > 0 && !filepath.IsAbs(ask.Command[0]):
		c.say(p, path+".command", ask.Command[0], "begin with the program's absolute path")
	case ways == 0 && s.open() && len(s.Providers) > 0 && c.Costly(s.Providers[0]):
		p.add(fmt.Errorf("%s is not set: any client could order certificates from %s, whose CA bills or limits them; set url, file or command, or match_file with the names", path, s.Providers[0]))
	}
}

// ways returns how many ways to decide are set.
func (a OnDemandAsk) ways() (n int) {
	for _, set := range []bool{a.URL != "", a.File != "", len(a.Command) > 0} {
		if set {
			n++
		}
	}
	return n
}

// open reports whether a pattern matches names that it does not list.
func (s Secret) open() bool {
	return slices.ContainsFunc(s.Match, func(pattern string) bool { return strings.HasPrefix(pattern, "*") })
}

// checkOverlaps refuses rules of which two have the same pattern: neither would be more specific.
func (c *Config) checkOverlaps(p *problems, rules []Secret) {
	sets := make([]*names.Patterns, len(rules))
	for i, s := range rules {
		set, err := names.New(s.Match...)
		if err != nil {
			return // completeRule has reported it
		}
		for j, before := range sets[:i] {
			if pattern, both := set.Overlap(before); both {
				p.add(fmt.Errorf("secrets.%s and secrets.%s both match %s: write each pattern once", rules[j].Name, s.Name, pattern))
			}
		}
		sets[i] = set
	}
}
