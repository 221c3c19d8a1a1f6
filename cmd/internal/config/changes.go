package config

import (
	"reflect"
	"slices"
	"strings"
)

// Changed returns the settings that differ between two complete configurations, in the order
// of the file. It lists an added or removed entry once, and no derived settings.
func Changed(old, now Config) []string {
	before, after := old.byPath(), now.byPath()
	half := inOne(old, now)
	var names []string
	noted := map[string]bool{}
	note := func(path string) {
		if name := entryIn(half, path); !noted[name] {
			names, noted[name] = append(names, name), true
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

// byPath returns the settings by path, without derived ones.
func (c *Config) byPath() map[string]any {
	all := map[string]any{}
	for _, e := range c.explain(true) {
		if e.From == byDefault || e.From != c.rule(e.Setting) {
			all[e.Setting] = e.Value
		}
	}
	return all
}

// inOne returns the entries that only one of the configurations has.
func inOne(old, now Config) map[string]bool {
	half := map[string]bool{}
	for _, name := range old.entries() {
		half[name] = true
	}
	for _, name := range now.entries() {
		if half[name] {
			delete(half, name)
		} else {
			half[name] = true
		}
	}
	return half
}

// entryIn returns the entry of a path that is among those, or the path.
func entryIn(entries map[string]bool, path string) string {
	for i, c := range path {
		if c == '.' && entries[path[:i]] {
			return path[:i]
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

// live lists the settings, or prefixes of them, that a running agent applies.
var live = []string{
	"providers.", "lock", "default_provider", "secrets.", "rotation.", "trust_domain", "namespace", "service_account", "key_type", "ttl",
	"crl", "crl.", "log.level", "socket.allow_uids", "socket.allow_gids",
	"broker.brokers", "broker.brokers.",
}

// NeedRestart returns the changed settings that a running agent cannot apply.
func NeedRestart(changed []string) []string {
	return slices.DeleteFunc(slices.Clone(changed), func(path string) bool {
		return slices.ContainsFunc(live, func(l string) bool { return path == l || strings.HasSuffix(l, ".") && strings.HasPrefix(path, l) })
	})
}
