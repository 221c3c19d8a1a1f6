package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
)

const (
	minLease, maxLease = 5 * time.Second, 5 * time.Minute
	// maxRate is beyond what any authority allows, so that a rate in another unit is seen.
	maxRate = 10_000
)

func (c *Config) check(p *settings.Problems) {
	c.checkCluster(p)
	c.checkProviders(p)
	c.checkAuthorities(p)
	c.checkSigners(p)
	c.checkIstio(p)
	c.checkMesh(p)
	c.checkCertManager(p)
	c.checkPublishBundle(p)
	c.checkRules(p)
	c.checkBudget(p)
	if c.Audit.File == "" {
		p.Say("audit.file", "", `write the path of a file, or "-" for standard output; nothing is issued without an audit log`)
	}
	c.Status.Check(p)
	settings.CheckLog(p, c.Log)
}

func (c *Config) checkCluster(p *settings.Problems) {
	if !settings.IsClusterID(c.Cluster.ID) {
		p.Say("cluster.id", c.Cluster.ID, "write the cluster's name in rules: 1 to 253 letters, digits, dots, - and _")
	}
	if !settings.IsNamespace(c.Cluster.SystemNamespace) {
		p.Say("cluster.system_namespace", c.Cluster.SystemNamespace, settings.WriteNamespace)
	}
	c.Remotes.check(p)
	if d := c.LeaderElection.Duration.Duration; d < minLease || d > maxLease || d%time.Second != 0 {
		p.Say("leader_election.duration", d, fmt.Sprintf("write whole seconds, %s to %s", minLease, maxLease))
	}
}

// checkProviders completes the providers. Names and roots are checked by the engine, exactly.
func (c *Config) checkProviders(p *settings.Problems) {
	if len(c.Providers) == 0 {
		p.Say("providers", "", "name the providers that sign")
		return
	}
	for _, entry := range c.Providers {
		if entry.IdentityCheck != "" && entry.IdentityCheck != "exact" {
			p.Say("providers."+entry.Name+".identity_check", entry.IdentityCheck, "only exact is allowed: a certificate has the names that the rules give; remove this")
		}
		if entry.RootOverlap != nil {
			p.Say("providers."+entry.Name+".root_overlap", entry.RootOverlap, "it has no effect: a root is published as long as a certificate needs it; remove this")
		}
	}
	if err := c.hosted.CompleteProviders(); err != nil {
		p.Add(err)
	}
	c.Plugins = c.hosted.Plugins
}

func (c *Config) isProvider(name string) bool {
	return slices.ContainsFunc(c.Providers, func(entry agent.Provider) bool { return entry.Name == name })
}

func (c *Config) configured() string {
	var names []string
	for _, entry := range c.Providers {
		names = append(names, entry.Name)
	}
	return "configured providers are " + strings.Join(names, ", ")
}

// settle completes the name of an authority, and checks it.
func (c *Config) settle(p *settings.Problems, setting string, name *string) {
	switch {
	case *name == "" && c.DefaultProvider != "":
		*name = c.DefaultProvider
	case *name == "" && len(c.Providers) > 1:
		p.Say(setting, "", "there are several providers: name one, here or in default_provider")
	case *name != "" && !c.isProvider(*name):
		p.Say(setting, *name, c.configured())
	}
}

// checkAuthorities adds an entry for each provider that has none.
func (c *Config) checkAuthorities(p *settings.Problems) {
	seen := map[string]bool{}
	for i := range c.Authorities {
		a := &c.Authorities[i]
		path := "authorities." + a.Name
		switch {
		case a.Name == "":
			p.Say(fmt.Sprintf("authorities.%d.name", i), "", c.configured())
		case !c.isProvider(a.Name):
			p.Say(path, a.Name, c.configured())
		case seen[a.Name]:
			p.Say(path, a.Name, "duplicate authority; write each once")
		}
		seen[a.Name] = true
		a.check(p, path)
	}
	for _, entry := range c.Providers {
		if !seen[entry.Name] {
			c.Authorities = append(c.Authorities, Authority{Name: entry.Name})
		}
	}
	for i := range c.Authorities {
		c.Authorities[i].setDefaults()
	}
}

func (a *Authority) check(p *settings.Problems, path string) {
	l := a.Limits
	if !(l.Rate >= 0 && l.Rate <= maxRate) { // not NaN either
		p.Say(path+".limits.rate", l.Rate, fmt.Sprintf("write the calls a second, more than 0 and no more than %d", maxRate))
	}
	for setting, value := range map[string]agent.Duration{
		"roots.wait": a.Roots.Wait, "roots.unplanned": a.Roots.Unplanned, "roots.interval": a.Roots.Interval,
	} {
		if value.Duration != 0 && value.Duration < time.Second {
			p.Say(path+"."+setting, value, "write 1s or more")
		}
	}
}

func (a *Authority) setDefaults() {
	for value, usual := range map[*agent.Duration]time.Duration{
		&a.Roots.Wait: 10 * time.Minute, &a.Roots.Unplanned: 10 * time.Minute, &a.Roots.Interval: 5 * time.Minute,
	} {
		if value.Duration == 0 {
			value.Duration = usual
		}
	}
	l := &a.Limits
	if l.Rate == 0 {
		l.Rate = 5
	}
	for value, usual := range map[*uint32]uint32{
		&l.Burst: max(1, uint32(min(l.Rate, maxRate))), &l.InFlight: 32,
	} {
		if *value == 0 {
			*value = usual
		}
	}
}

func (c *Config) checkBudget(p *settings.Problems) {
	b := c.Budget
	for setting, value := range map[string]uint32{"holder": b.Holder, "namespace": b.Namespace} {
		if value == 0 {
			p.Say("budget."+setting, value, "write 1 or more")
		}
	}
	for setting, value := range map[string]agent.Duration{"holder_every": b.HolderEvery, "namespace_every": b.NamespaceEvery} {
		if value.Duration <= 0 {
			p.Say("budget."+setting, value, "write more than 0s")
		}
	}
	c.checkRenewals(p)
}

// checkRenewals refuses a budget that is used up by renewals alone, at half of a certificate's life.
func (c *Config) checkRenewals(p *settings.Problems) {
	every := c.Budget.HolderEvery.Duration
	for _, r := range slices.Concat(c.ownRules(), c.given) {
		if half := r.MaxTTL / 2; 0 < half && half < every {
			p.Say("budget.holder_every", every, fmt.Sprintf("certificates of the rule %s live for %s and are renewed at half of that; write %s or less", r.Name, r.MaxTTL, half))
			return
		}
	}
}

// inner returns the one error below a policy's "rule 1 (name)", which here has a setting's
// name.
func inner(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		err = joined.Unwrap()[0]
	}
	if below := errors.Unwrap(err); below != nil {
		return below
	}
	return err
}
