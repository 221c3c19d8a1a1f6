package config

import (
	"reflect"
	"slices"
	"strings"
)

// Changed names the settings that differ between two complete configurations, in the
// order of the file; an entry that is new or gone by itself, and not what follows from
// something else that changed.
func Changed(old, now Config) []string {
	before, after := old.told(), now.told()
	var names []string
	note := func(path string) {
		if name := entryOfBoth(path, old, now); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, e := range now.explain(true) {
		if value, ok := after[e.Setting]; ok && !reflect.DeepEqual(value, before[e.Setting]) {
			note(e.Setting)
		}
	}
	for _, e := range old.explain(true) {
		_, was := before[e.Setting]
		if _, is := after[e.Setting]; was && !is {
			note(e.Setting)
		}
	}
	return names
}

// told returns the settings by their paths, but for those that follow from others.
func (c *Config) told() map[string]any {
	all := map[string]any{}
	for _, e := range c.explain(true) {
		if e.From == byDefault || e.From != c.rule(e.Setting) {
			all[e.Setting] = e.Value
		}
	}
	return all
}

// entryOfBoth returns the path, or that of its whole entry, where one of both has none.
func entryOfBoth(path string, old, now Config) string {
	for _, name := range append(old.entries(), now.entries()...) {
		if strings.HasPrefix(path, name+".") && slices.Contains(old.entries(), name) != slices.Contains(now.entries(), name) {
			return name
		}
	}
	return path
}

func (c *Config) entries() []string {
	var names []string
	for _, p := range c.Providers {
		names = append(names, "providers."+p.Name)
	}
	for _, s := range c.Secrets {
		names = append(names, "secrets."+s.Name)
	}
	return names
}

// live are the settings, and the beginnings of such, that a running agent takes over.
var live = []string{
	"providers.", "lock", "default_provider", "secrets.", "rotation.", "trust_domain", "namespace", "service_account", "key_type", "ttl",
	"log.level", "socket.allow_uids", "socket.allow_gids",
}

// NeedRestart names those of the changed settings that a running agent does not take
// over.
func NeedRestart(changed []string) []string {
	return slices.DeleteFunc(slices.Clone(changed), func(path string) bool {
		return slices.ContainsFunc(live, func(l string) bool { return path == l || strings.HasSuffix(l, ".") && strings.HasPrefix(path, l) })
	})
}
