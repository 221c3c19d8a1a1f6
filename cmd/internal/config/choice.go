package config

import (
	"cmp"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
)

// Choice is the CA that signs "default", and the rule that chose it.
type Choice istiocompat.Choice

// Assignment is one setting from a variable or a flag.
type Assignment istiocompat.Assignment

// fileProvider is a CA in a folder.
const fileProvider = "file"

// chosen returns what the configuration itself chooses for secrets that name no provider.
func (c *Config) chosen() Choice {
	for _, p := range c.Providers {
		switch {
		case p.Name == c.DefaultProvider:
			return Choice{p.Name, p.binary(), cmp.Or(c.origins["default_provider"], "default_provider") + " names it"}
		case c.DefaultProvider == "" && len(c.Providers) == 1:
			return Choice{p.Name, p.binary(), "it is the only configured provider"}
		}
	}
	return Choice{}
}

// binary is the name of the entry's provider.
func (p Provider) binary() string { return cmp.Or(p.Provider, p.Name) }
