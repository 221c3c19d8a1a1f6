package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/reference"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/lock"
)

// ToRun returns what the host is to run for the provider.
func (p Provider) ToRun() pluginhost.Entry {
	e := p.Entry
	e.Limits = pluginhost.Limits{
		Memory: int64(p.Limits.Memory), Descriptors: int(p.Limits.Descriptors), Processes: int(p.Limits.Processes), CPU: p.Limits.CPU,
	}
	if p.unpinned() {
		e.SHA256 = "" // the pin is that of the installed build
	}
	return e
}

// unpinned reports whether it runs a development build.
func (p Provider) unpinned() bool { return p.Path != "" || p.Attach != "" }

// isLocked reports whether it runs the build of the lock file.
func (p Provider) isLocked() bool {
	return !p.unpinned() && strings.EqualFold(p.SHA256, p.locked.SHA256)
}

// secretSettings returns its secret settings; nil if they are unknown.
func (p Provider) secretSettings() reference.Paths {
	if !p.isLocked() {
		return nil
	}
	return p.locked.SecretSettings
}

// LockPath returns the path of the lock file, empty for none, and whether it must exist.
func (c *Config) LockPath() (path string, wanted bool) {
	switch {
	case c.Lock != "":
		return c.Lock, true
	case c.file != "":
		return filepath.Join(filepath.Dir(c.file), lock.FileName), false
	}
	return "", false
}

// Unpinned returns the names of the providers that an entry uses without a pin.
func (c *Config) Unpinned() (names []string) {
	for _, entry := range c.Providers {
		if entry.SHA256 == "" && !entry.unpinned() && !slices.Contains(names, entry.binary()) {
			names = append(names, entry.binary())
		}
	}
	return names
}

// PinnedBy returns the provider of an entry, and the lock file or the setting that pins its program;
// the latter is empty for one that is not pinned, or pinned to a version.
func (c *Config) PinnedBy(entry Provider) (provider, by string) {
	provider = entry.binary()
	if entry.SHA256 == "" || entry.unpinned() || entry.Version != "" {
		return provider, ""
	}
	path := "providers." + entry.Name + ".sha256"
	return provider, cmp.Or(c.origins[path], path)
}

// UseBuild has use make every entry of a provider run a development build. It fails if no entry
// uses the provider.
func (c *Config) UseBuild(provider string, use func(*Provider)) error {
	var known []string
	found := false
	for i := range c.Providers {
		entry := &c.Providers[i]
		if entry.binary() == provider {
			use(entry)
			found = true
		}
		known = append(known, entry.binary())
	}
	if found {
		return nil
	}
	return fmt.Errorf("no entry in providers uses provider %.256q: configured are %s", provider, strings.Join(known, ", "))
}

// Pin applies the pins for this platform from a lock file. The pin of an entry must match.
func (c *Config) Pin(path string, l *lock.Lock) error {
	var all problems
	for i := range c.Providers {
		entry := &c.Providers[i]
		build, ok := l.Of(entry.binary(), runtime.GOOS, runtime.GOARCH)
		if !ok || entry.unpinned() {
			continue
		}
		setting := "providers." + entry.Name + ".sha256"
		switch {
		case entry.SHA256 == "":
			entry.SHA256 = build.SHA256
			c.origins[setting] = path
		case !strings.EqualFold(entry.SHA256, build.SHA256):
			c.say(&all, setting, entry.SHA256, fmt.Sprintf("%s pins %s; remove sha256 from the entry, or lock the provider again", path, build.SHA256))
		}
		entry.Version, entry.locked = build.FileVersion(), build
	}
	return all.err()
}
