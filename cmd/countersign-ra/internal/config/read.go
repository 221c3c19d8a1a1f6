package config

import (
	"slices"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/ra"
)

// Read reads and checks a file. Providers are searched for in dirs before the folders in it, and
// those before the folders of the environment. The
// error joins one error for each invalid setting; the settings that could be parsed are returned
// with it.
func Read(env environ.Vars, name string, dirs ...string) (Config, error) {
	text, err := settings.ReadFile(name)
	if err != nil {
		return defaults(), err
	}
	return parse(env, name, text, dirs)
}

// Parse is like Read with no environment, for the content of a file.
func Parse(name string, text []byte, dirs ...string) (Config, error) {
	return parse(nil, name, text, dirs)
}

func parse(env environ.Vars, name string, text []byte, dirs []string) (Config, error) {
	c := defaults()
	file, err := agent.Decode(&c, name, text)
	c.file = file
	c.ProviderDirs = slices.Concat(dirs, c.ProviderDirs)
	if err != nil {
		return c, err
	}
	c.hosted = agent.Host(name, c.Plugins)
	if err := settings.Pin(env, &c.hosted); err != nil {
		return c, err
	}
	p := &settings.Problems{}
	c.check(p)
	return c, p.Err()
}

// Hosted returns the agent configuration whose providers are the authorities.
func (c *Config) Hosted() *agent.Config { return &c.hosted }

// Policy returns the rules of a valid configuration.
func (c *Config) Policy() *ra.Policy { return c.policy }

// Explain returns every setting with its origin; possible credentials are hidden.
func (c *Config) Explain() []agent.Explained { return c.file.Explain(c) }
