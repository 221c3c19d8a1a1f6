package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Choice says which certificate authority signs "default", and by which rule it was
// chosen.
type Choice struct {
	Entry    string `json:"provider"` // its name below "providers"
	Provider string `json:"binary"`   // its provider's name
	Rule     string `json:"because"`  // a sentence
}

// usualRule is by no other rule than that there has to be one.
const usualRule = "nothing names another (CA_PROVIDER, CA_ADDR, providers): istiod at its usual address"

const (
	citadelProvider = "citadel" // speaks with istiod's CA
	fileProvider    = "file"    // a CA in a folder
	googleProvider  = "google"
)

// aliases are the names that Istio has for providers, in lower case.
var aliases = map[string]string{"googleca": googleProvider, "googlecas": googleProvider}

// providerCalled returns the provider that a name means, in any case.
func providerCalled(name string) string {
	name = strings.ToLower(name)
	return cmp.Or(aliases[name], name)
}

// chooser chooses by CA_PROVIDER and CA_ADDR among what file and flags configure.
type chooser struct {
	name, address string // the variables
	configured    *Config
}

// choose returns the choice and what the variables set for it. The choice is empty
// where nothing is said and several providers are configured.
func (c chooser) choose() (Choice, []Assignment, error) {
	switch {
	case c.name != "":
		return c.byName()
	case c.address != "":
		return c.byAddress()
	case len(c.configured.Providers) == 0:
		usual := Choice{citadelProvider, citadelProvider, usualRule}
		return usual, usual.entry(""), nil
	}
	return c.configured.chosen(), nil, nil
}

func (c chooser) byName() (Choice, []Assignment, error) {
	provider := providerCalled(c.name)
	if !wire.ValidName(provider) {
		return Choice{}, nil, fmt.Errorf("CA_PROVIDER is %q: write the name of an installed provider, such as Citadel or File; \"countersign provider list\" shows them", clip(c.name))
	}
	choice, configured := c.entryOf(strings.ToLower(c.name), provider)
	choice.Rule = fmt.Sprintf("CA_PROVIDER is %q", c.name)
	settings, err := parseAddress(c.address).settings(choice.Provider, strings.ToLower(c.name))
	switch {
	case c.address == "" && !configured && provider == googleProvider:
		err = fmt.Errorf("CA_PROVIDER is %q: set CA_ADDR, too: %s", c.name, googleForms)
	case err != nil:
		err = fmt.Errorf("CA_ADDR is %q while CA_PROVIDER is %q: %w, or unset one of them", clip(withoutPassword(c.address)), c.name, err)
	}
	return choice, append(choice.entry("CA_PROVIDER"), choice.below(settings)...), err
}

func (c chooser) byAddress() (Choice, []Assignment, error) {
	a := parseAddress(c.address)
	provider, rule := a.chooses()
	choice, _ := c.entryOf(provider, provider)
	choice.Rule = "CA_ADDR " + rule
	settings, err := a.settings(choice.Provider, a.scheme)
	if err != nil {
		err = fmt.Errorf("CA_ADDR is %q: %w", clip(withoutPassword(c.address)), err)
	}
	return choice, append(choice.entry("CA_ADDR"), choice.below(settings)...), err
}

// entryOf returns the configured entry of that name, else the one that runs the
// provider, else a new one.
func (c chooser) entryOf(name, provider string) (choice Choice, configured bool) {
	for _, fits := range []func(Provider) bool{
		func(p Provider) bool { return p.Name == name },
		func(p Provider) bool { return p.binary() == provider },
	} {
		if i := slices.IndexFunc(c.configured.Providers, fits); i >= 0 {
			entry := c.configured.Providers[i]
			return Choice{Entry: entry.Name, Provider: entry.binary()}, true
		}
	}
	return Choice{Entry: provider, Provider: provider}, false
}

// entry has the choice be there, and be the default.
func (c Choice) entry(variable string) []Assignment {
	return []Assignment{{"providers." + c.Entry + ".name", c.Entry, variable}, {"default_provider", c.Entry, variable}}
}

// below makes settings the entry's, of CA_ADDR.
func (c Choice) below(settings map[string]string) []Assignment {
	var found []Assignment
	for name, value := range settings {
		found = append(found, c.setting(name, value, "CA_ADDR"))
	}
	return found
}

// setting is one of the provider's settings. It goes in JSON, so that it is text
// whatever it looks like: a cluster may be called 1.
func (c Choice) setting(name string, value any, variable string) Assignment {
	return Assignment{"providers." + c.Entry + ".settings." + name, inJSON(value), variable}
}

// chosen returns what the configuration itself chooses for secrets that name no
// provider.
func (c *Config) chosen() Choice {
	for _, p := range c.Providers {
		switch {
		case p.Name == c.DefaultProvider:
			return Choice{p.Name, p.binary(), cmp.Or(c.origins["default_provider"], "default_provider") + " names it"}
		case c.DefaultProvider == "" && len(c.Providers) == 1:
			return Choice{p.Name, p.binary(), "it is the only provider that is configured"}
		}
	}
	return Choice{}
}

// binary is the name of the entry's provider.
func (p Provider) binary() string { return cmp.Or(p.Provider, p.Name) }
