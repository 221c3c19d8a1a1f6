package config

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/countersign-dev/countersign/internal/host/address"
	"github.com/countersign-dev/countersign/internal/text"
)

// addresses returns the settings that the address of an entry may become. known is false if
// they are a guess, as no lock file lists them.
func (p Provider) addresses() (settings address.Settings, known bool) {
	if !p.isLocked() || p.locked.AddressSettings == nil {
		return address.Usual, false
	}
	for _, one := range p.locked.AddressSettings { // none: it takes no address
		settings = append(settings, address.Setting{Name: one.Setting, Form: address.Form(one.Form), Pattern: one.Pattern})
	}
	return settings, true
}

// AddressOf returns the address of an entry's CA, as far as it is known without the provider.
func (c *Config) AddressOf(entry Provider) string {
	settings, _ := entry.addresses()
	return cmp.Or(entry.Address, settings.In(entry.Settings))
}

// settleAddress leaves one of the entry's address and the setting that it becomes: the one that was
// set closer to the command line. A file that has both is wrong. Of a guessed setting, which may be
// for something else, the flag counts; otherwise the host decides by the provider's schema.
func (c *Config) settleAddress(p *problems, entry *Provider, path string) {
	at := path + ".address"
	names, known := c.replaced(p, *entry, at)
	for _, name := range names {
		setting := path + ".settings." + name
		switch {
		case entry.Settings[name] == nil:
		case c.byFlag(setting) && !c.byFlag(at):
			entry.Address = ""
		case !known:
		case c.origins[at] == "" && c.origins[setting] == "":
			p.add(fmt.Errorf("%s and %s are both set: remove one of them", at, setting))
		default:
			entry.Settings = maps.Clone(entry.Settings)
			delete(entry.Settings, name)
		}
	}
}

// replaced returns the settings that the address of an entry replaces. known is false if they are a
// guess.
func (c *Config) replaced(p *problems, entry Provider, at string) (names []string, known bool) {
	settings, known := entry.addresses()
	switch {
	case entry.Address == "":
		return nil, known
	case !known:
		for _, one := range settings {
			names = append(names, one.Name)
		}
		return names, false
	}
	name, _, err := settings.Choose(entry.Address)
	if err != nil {
		c.say(p, at, text.WithoutPassword(entry.Address), err.Error())
	}
	return []string{name}, true
}

// byFlag reports whether a setting is from the command line.
func (c *Config) byFlag(path string) bool { return strings.HasPrefix(c.origins[path], "--") }
