package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/host/reference"
)

// LockFile is the name of the lock file beside a configuration.
const LockFile = "countersign.lock"

// Build identifies the build of a provider's binary if its entry does not.
type Build struct {
	Version string // in the file name; empty for none
	SHA256  string // from the lock file
	// Secrets are the provider's secret settings, from the lock file; nil: unknown.
	Secrets reference.Paths
	// Addresses are the settings that its address may become, from the lock file; nil: unknown.
	Addresses address.Settings
	Path      string // a development build to run instead of the installed binary
	Attach    string // the socket of a provider that runs in a debugger
	Missing   bool   // no such provider is installed
}

// unpinned reports whether it is a development build.
func (b Build) unpinned() bool { return b.Path != "" || b.Attach != "" }

// LockPath returns the path of the lock file, empty for none, and whether it must exist.
func (c *Config) LockPath() (path string, wanted bool) {
	switch {
	case c.Lock != "":
		return c.Lock, true
	case c.file != "":
		return filepath.Join(filepath.Dir(c.file), LockFile), false
	}
	return "", false
}

// BuildOf returns the build that an entry runs.
func (c *Config) BuildOf(entry Provider) Build { return c.builds[entry.binary()] }

// SecretsOf returns the secret settings of an entry's provider; nil if they are unknown.
func (c *Config) SecretsOf(entry Provider) reference.Paths {
	b := c.BuildOf(entry)
	if b.unpinned() || !strings.EqualFold(entry.SHA256, b.SHA256) {
		return nil
	}
	return b.Secrets
}

// Unpinned returns the names of the providers that an entry uses without a pin.
func (c *Config) Unpinned() (names []string) {
	for _, entry := range c.Providers {
		if entry.SHA256 == "" && !c.BuildOf(entry).unpinned() && !slices.Contains(names, entry.binary()) {
			names = append(names, entry.binary())
		}
	}
	return names
}

// PinnedBy returns the provider of an entry, and the lock file or the setting that pins its program;
// the latter is empty for one that is not pinned, or pinned to a version.
func (c *Config) PinnedBy(entry Provider) (provider, by string) {
	provider = entry.binary()
	if entry.SHA256 == "" || c.BuildOf(entry).unpinned() || c.BuildOf(entry).Version != "" {
		return provider, ""
	}
	path := "providers." + entry.Name + ".sha256"
	return provider, cmp.Or(c.origins[path], path)
}

// MarkMissing notes that the provider of an entry is not installed, so that its missing pin is no
// second error.
func (c *Config) MarkMissing(entry Provider) {
	b := c.BuildOf(entry)
	b.Missing = true
	c.setBuild(entry.binary(), b)
}

// UseBuild makes every entry of a provider run a development build. It fails if no entry
// uses the provider.
func (c *Config) UseBuild(provider string, b Build) error {
	var known []string
	for _, entry := range c.Providers {
		if entry.binary() == provider {
			c.setBuild(provider, b)
			return nil
		}
		known = append(known, entry.binary())
	}
	return fmt.Errorf("no entry in providers uses provider %.256q: configured are %s", provider, strings.Join(known, ", "))
}

func (c *Config) setBuild(provider string, b Build) {
	if c.builds == nil {
		c.builds = map[string]Build{}
	}
	c.builds[provider] = b
}

// Pin applies the pins for this platform from a lock file, by provider name. The pin of an
// entry must match.
func (c *Config) Pin(lock string, locked map[string]Build) error {
	var all problems
	for i := range c.Providers {
		entry := &c.Providers[i]
		build, ok := locked[entry.binary()]
		if !ok || c.BuildOf(*entry).unpinned() {
			continue
		}
		path := "providers." + entry.Name + ".sha256"
		switch {
		case entry.SHA256 == "":
			entry.SHA256 = build.SHA256
			c.origins[path] = lock
		case !strings.EqualFold(entry.SHA256, build.SHA256):
			c.say(&all, path, entry.SHA256, fmt.Sprintf("%s pins %s; remove sha256 from the entry, or lock the provider again", lock, build.SHA256))
		}
		c.setBuild(entry.binary(), build)
	}
	return all.err()
}
