package ra

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	maxRules       = 1000
	defaultMaxTTL  = 24 * time.Hour
	defaultHolders = 100
)

// Rule grants names to the subjects that it matches.
type Rule struct {
	// Name is for the audit log and metrics. It is unique.
	Name  string
	Match Match
	Names Names
	// Authority is the name of the authority that signs.
	Authority string
	// MaxTTL is the longest lifetime, NotAfter − NotBefore, what the authority backdates
	// included. A request for more gets this. [Authority.AcceptLongerTTL] lets certificates live
	// longer. Default: 24 hours.
	MaxTTL time.Duration
	// KeyTypes are the types of keys that are certified, such as "ecdsa-p256" or
	// "rsa-3072". Default: ECDSA with P-256, P-384 or P-521, Ed25519, and RSA with 2,048
	// to 8,192 bits.
	KeyTypes []string
	// Usages is what the certificate must be good for. Default: any TLS usage.
	Usages Usages
	// Holders is how many times the budget of a holder ([Budget.Holder]) a subject has that can make
	// holders: a service account or user with tokens of its own machines
	// ([Request.WithinSubject]), and a namespace that asks for names of its own. Default: 100.
	Holders int
}

// Policy grants certificates: it has rules in order, of which the first that
// matches decides. It does not change and is safe for concurrent use.
type Policy struct {
	rules []rule
}

// rule is a checked Rule.
type rule struct {
	Rule
	match matcher
	names templates
}

// NewPolicy checks the rules. A rule without Clusters is for the cluster home. The error
// names each rule that is wrong.
func NewPolicy(home string, rules []Rule) (*Policy, error) {
	var errs []error
	if home == "" {
		errs = append(errs, errors.New("the home cluster has no name"))
	}
	if len(rules) > maxRules {
		return nil, fmt.Errorf("%d rules are too many: a policy has %d at most", len(rules), maxRules)
	}
	p := &Policy{}
	for i, conf := range rules {
		r, err := newRule(conf, home)
		if err == nil && p.has(conf.Name) {
			err = errors.New("another rule has the same name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %d (%.64q): %w", i+1, conf.Name, err))
			continue
		}
		p.rules = append(p.rules, r)
	}
	return p, errors.Join(errs...)
}

func newRule(conf Rule, home string) (rule, error) {
	conf.KeyTypes, conf.Names.Requested = slices.Clone(conf.KeyTypes), slices.Clone(conf.Names.Requested)
	if conf.MaxTTL == 0 {
		conf.MaxTTL = defaultMaxTTL
	}
	if conf.Holders == 0 {
		conf.Holders = defaultHolders
	}
	if len(conf.Match.Clusters) == 0 {
		conf.Match.Clusters = []string{home}
	}
	r := rule{Rule: conf}
	if err := r.check(); err != nil {
		return r, err
	}
	var err error
	if r.match, err = newMatcher(conf.Match); err != nil {
		return r, err
	}
	r.names, err = parseNames(conf.Names)
	return r, err
}

func (r rule) check() error {
	if err := checkKeyTypes(r.KeyTypes); err != nil {
		return err
	}
	switch {
	case r.Name == "" || text.Clean(r.Name) != r.Name:
		return errors.New("it needs a name that prints")
	case r.Authority == "":
		return errors.New("it names no authority")
	case r.MaxTTL < 0:
		return fmt.Errorf("its longest lifetime is %s: use more than 0", r.MaxTTL)
	case r.Holders < 0:
		return fmt.Errorf("its holders are %d: use 1 or more", r.Holders)
	case !slices.Contains(allUsages, r.Usages):
		return fmt.Errorf("the usages %.64q are not known: use one of %q", r.Usages, allUsages)
	}
	return nil
}

func (p *Policy) has(name string) bool {
	return slices.ContainsFunc(p.rules, func(r rule) bool { return r.Name == name })
}

// Decision is what a policy grants a subject, and why.
type Decision struct {
	// Rule is the name of the rule that matched; empty if none did.
	Rule string
	// Passed has the rules before it that did not match, in order, and why.
	Passed []Passed
	// Denied is why nothing is granted; empty if Identity is.
	Denied string

	// Identity has the names that are granted to each request; none, if the rule has only
	// names to ask for, which are in Requested as the rule has them.
	Identity  pki.Identity
	Requested []string
	Authority string
	MaxTTL    time.Duration
	KeyTypes  []string
	Usages    Usages
	Holders   int

	chosen bool // whether tenants choose a part of the names
}

// Passed is a rule that did not match, and why.
type Passed struct{ Rule, Why string }

// Explain returns the decision in lines, for people to read.
func (d Decision) Explain() string {
	var out strings.Builder
	for _, p := range d.Passed {
		fmt.Fprintf(&out, "rule %q does not match: %s\n", p.Rule, p.Why)
	}
	if d.Rule != "" {
		fmt.Fprintf(&out, "rule %q matches\n", d.Rule)
	}
	if d.Denied != "" {
		fmt.Fprintf(&out, "denied: %s\n", d.Denied)
		return out.String()
	}
	if !d.Identity.IsZero() {
		fmt.Fprintf(&out, "granted: %s\n", d.Identity)
	}
	if len(d.Requested) > 0 {
		fmt.Fprintf(&out, "granted if asked for: %s\n", strings.Join(d.Requested, ", "))
	}
	fmt.Fprintf(&out, "by authority %q, for %s at most\n", d.Authority, d.MaxTTL)
	return out.String()
}

// Try returns what a subject would be granted at a door, and why. It has no effect. It
// takes any subject, also one that no door would let through.
func (p *Policy) Try(s Subject, door string) Decision {
	r, passed := p.first(s, door, true)
	d := p.decide(r, s)
	d.Passed = passed
	return d
}

// Decide is Try without Passed: to explain each rule costs more than to decide.
func (p *Policy) Decide(s Subject, door string) Decision {
	r, _ := p.first(s, door, false)
	return p.decide(r, s)
}

// first returns the first rule that matches, or nil.
func (p *Policy) first(s Subject, door string, explain bool) (match *rule, passed []Passed) {
	for i := range p.rules {
		if p.rules[i].match.matches(s, door) {
			return &p.rules[i], passed
		}
		if explain {
			passed = append(passed, Passed{p.rules[i].Name, p.rules[i].match.why(s, door)})
		}
	}
	return nil, passed
}

// decide fills the templates of the rule that matched. A name that cannot be made denies
// all: a later rule must not grant what an earlier one meant to withhold.
func (p *Policy) decide(r *rule, s Subject) Decision {
	if err := s.check(); err != nil {
		return Decision{Denied: err.Error()}
	}
	if r == nil {
		return Decision{Denied: "no rule matches"}
	}
	d := Decision{Rule: r.Name, Requested: r.Names.Requested, Authority: r.Authority, MaxTTL: r.MaxTTL, KeyTypes: r.KeyTypes, Usages: r.Usages, Holders: r.Holders}
	d.chosen = r.names.chosen()
	var err error
	if d.Identity, err = r.names.fill(s); err != nil {
		d.Identity, d.Denied = pki.Identity{}, err.Error()
	}
	return d
}
