package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// LockFile is what the lock file beside a configuration is called.
const LockFile = "countersign.lock"

// Build says which build of a provider's binary runs, where its entry alone does not.
type Build struct {
	Version string // in the name of its file; empty: there is none
	SHA256  string // as it is locked
	Path    string // a file that was just built, to run in place of the installed one
	Attach  string // the socket of one that runs in a debugger
}

// unpinned tells whether it is a build of somebody who is working on it.
func (b Build) unpinned() bool { return b.Path != "" || b.Attach != "" }

// LockPath returns where the lock file is, and whether it must be there; empty: there
// can be none.
func (c *Config) LockPath() (path string, wanted bool) {
	switch {
	case c.Lock != "":
		return c.Lock, true
	case c.file != "":
		return filepath.Join(filepath.Dir(c.file), LockFile), false
	}
	return "", false
}

// BuildOf returns what is known of the build that an entry runs.
func (c *Config) BuildOf(entry Provider) Build { return c.builds[entry.binary()] }

// UseBuild has every entry of a provider run a build of somebody who is working on
// it. A provider that no entry has is an error.
func (c *Config) UseBuild(provider string, b Build) error {
	var known []string
	for _, entry := range c.Providers {
		if entry.binary() == provider {
			c.setBuild(provider, b)
			return nil
		}
		known = append(known, entry.binary())
	}
	return fmt.Errorf("no entry of providers has the provider %.256q; there are: %s", provider, strings.Join(known, ", "))
}

func (c *Config) setBuild(provider string, b Build) {
	if c.builds == nil {
		c.builds = map[string]Build{}
	}
	c.builds[provider] = b
}

// Pin takes over what a lock file, by its name, has locked for this platform: by the
// provider's name. A pin that an entry has itself must be the same.
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
			c.say(&all, path, entry.SHA256, fmt.Sprintf("%s has locked %s; remove it from the entry, or lock the provider anew", lock, build.SHA256))
		}
		c.setBuild(entry.binary(), build)
	}
	return all.err()
}
