package config

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
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
	p := &settings.Problems{}
	c.check(p)
	if err := p.Err(); err != nil {
		return c, err
	}
	return c, c.sign(env, name)
}

// sign derives the agent configuration that obtains the certificate.
func (c *Config) sign(env environ.Vars, name string) error {
	own := c.Certificate
	if own.inFiles() {
		return nil
	}
	signed := agent.Own(name, c.Plugins, []agent.Secret{{
		Name: agent.DefaultSecret, SPIFFEID: own.SPIFFEID, DNSNames: own.DNSNames, KeyType: own.KeyType, TTL: own.TTL, Providers: own.Providers,
	}})
	if err := settings.Pin(env, &signed); err != nil {
		return err
	}
	c.signed = &signed
	if err := signed.Complete(); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "secrets."+agent.DefaultSecret, "certificate"))
	}
	return nil
}

// Explain returns every setting with its origin; possible credentials are hidden.
func (c *Config) Explain() []agent.Explained { return c.file.Explain(c) }

func (c Certificate) inFiles() bool { return cmp.Or(c.ChainFile, c.KeyFile) != "" }
