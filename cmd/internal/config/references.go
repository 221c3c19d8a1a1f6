package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/internal/host/reference"
)

// checkSecrets checks the references to secrets, as far as the lock file marks the secret
// settings. Files and commands are read when the provider starts.
func (c *Config) checkSecrets(p *problems, entry Provider, path string) {
	err := reference.Check(entry.Settings, entry.secretSettings())
	if err == nil && c.lookupEnv != nil {
		err = reference.Unset(entry.Settings, entry.secretSettings(), c.lookupEnv)
	}
	all, joined := err.(interface{ Unwrap() []error }) //nolint:errorlint // it is not wrapped
	if !joined {
		p.check(err)
		return
	}
	for _, one := range all.Unwrap() {
		p.add(fmt.Errorf("%s.settings.%w", path, one))
	}
}

// UseEnviron sets the environment that references to variables are checked against, KEY=VALUE.
// Without it, they are not checked.
func (c *Config) UseEnviron(environ []string) {
	values := maps.Collect(variables(environ))
	c.lookupEnv = func(name string) (string, bool) { value, ok := values[name]; return value, ok }
}

// SecretVariables returns the variables of the agent's environment that tokens and secret
// settings are read from. No child of the agent inherits them.
func (c *Config) SecretVariables() []string {
	var names []string
	for _, entry := range c.Providers {
		for _, source := range entry.TokenSources() {
			if source.Env != "" {
				names = append(names, source.Env)
			}
		}
		names = append(names, reference.Variables(entry.Settings)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
